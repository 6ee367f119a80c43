"What README tells a class to do, done as it stands there: on a table and on texts that nobody has seen."
import os, re, subprocess, sys
from pathlib import Path
import pytest

TOP = Path(__file__).resolve().parents[1]

def lessons():
    "Word of a paper -> what its row of the teaching table tells to do, each in its own backticks"
    part = (TOP/'README.md').read_text(encoding='utf8').split('## Teach')[1].split('\n## ')[0]
    rows = [[c.strip() for c in l.strip('|').split('|')] for l in part.splitlines() if l.startswith('| `')]
    return {r[0].strip('`'): re.findall('`([^`]+)`', r[3]) for r in rows}

LESSONS = lessons()

def told(word, begins):
    found = [c for c in LESSONS[word] if c.startswith(begins)]
    assert len(found) == 1, f'{word}: README tells {found or "nothing"} that begins with {begins}'
    return found[0]

@pytest.fixture
def at(tmp_path):
    "A folder with a table of somebody and a file of texts"
    rows = [f'{17*i % 101},{(7*i % 13)/2},{"low mid high".split()[i % 3]}' for i in range(40)]
    (tmp_path/'my.csv').write_text('height,weight,grade\n' + '\n'.join(rows) + '\n')
    texts = [f'The {a} of {b} was closed on a {c} in the rain, and nobody came.' for a, b, c in zip(
        'gate shop mill bridge'.split(), 'Orvath Quelm Tessar Brund'.split(), 'Monday Friday Sunday Tuesday'.split())]
    (tmp_path/'texts.csv').write_text('text\n' + '\n'.join(f'"{t}"' for t in texts) + '\n')
    return tmp_path

def run(code, cwd):
    "A line of a terminal that begins with memnb, or lines of Python"
    cmd = [sys.executable, '-m', 'memnb.cli', *code.split()[1:]] if code.startswith('memnb ') else [sys.executable, '-c', code]
    env = os.environ | dict(PYTHONPATH=str(TOP), MPLBACKEND='agg')
    r = subprocess.run(cmd, cwd=cwd, env=env, capture_output=True, text=True, encoding='utf8')
    assert r.returncode == 0, f'{code}:\n{r.stdout}{r.stderr}'
    return r.stdout

def test_every_paper_has_two_experiments():
    from memnb.exercises import exercise
    from memnb.papers import notebooks
    assert [*LESSONS] == [w for w in notebooks(TOP/'nbs')]
    for word, does in LESSONS.items():
        assert f'exercise("{word}", 1)' in does and '2' in does
        assert [exercise(word, n).minutes <= 15 for n in (1, 2)] == [True, True]

def test_a_table_of_your_own(at):
    out = run(told('tabular', 'memnb table'), at)
    page = (at/out.strip()).read_text(encoding='utf8')
    assert out.strip().endswith('.html') and 'height' in page and 'my' in page

def test_twenty_answers_to_judge(at):
    pytest.importorskip('ipywidgets', reason="ipywidgets is missing: install the extra 'lab'")
    code = told('icl', 'icl.review')
    out = run(f'from memnb import icl\nbox = {code}\nprint(box.children[0].value)\nbox.children[1].children[0].click()\n'
              'print(icl.reviewed("mine.csv").to_string())', at)
    assert '20 to go' in out and 'exact' in out and (at/'mine.csv').exists()

def test_bits_of_your_texts(at):
    code = told('capacity', 'capacity.unintended').replace('[...]', "['The gate of Orvath was closed in the rain.']")
    out = run(f'from memnb import capacity\nprint({code})', at)
    assert re.search(r'\d', out)

def test_all_notions_of_your_texts(at):
    said = [(at/f).read_text(encoding='utf8') for f in run(told('compare', 'memnb ask'), at).split()]
    assert len(said) == 2 and all('Orvath' in t for t in said)

def test_orders_by_threshold(at):
    assert {'memnb run smoke --only contextual', 'memnb report'} <= {*LESSONS['contextual']} # both are run in test_batch and test_report
