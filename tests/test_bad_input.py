"Bad input of every kind: a clear error that says what to do, early, and nothing lost."
import subprocess, sys
import pandas as pd
import pytest
from memnb import data, lm, tabular

class Echo(lm.LM):
    "A backend that answers at once and counts"
    caps = frozenset({'generate'})
    def _answer(self, todo):
        for i, _ in enumerate(todo): yield i, 'x = 1'

@pytest.fixture
def model(tmp_path): return Echo('echo', 'echo', 'chat', store=lm.Store(tmp_path/'s.sqlite'))

def csv(tmp_path, raw, name='my.csv'):
    path = tmp_path/name
    path.write_bytes(raw if isinstance(raw, bytes) else raw.encode())
    return path

TABLES = {
    'empty': ('', 'empty'),
    'one row': ('a,b\n1,2\n', 'row'),
    'one column': ('a\n1\n2\n3\n', 'column'),
    'duplicated header': ('a,a\n1,2\n3,4\n', 'a'),
    'ragged': ('a,b\n1,2\n3\n4,5\n', 'line 3'),
    'not utf-8': (b'a,b\n1,caf\xe9\n2,x\n', 'UTF-8'),
}

@pytest.mark.parametrize('kind', TABLES)
def test_bad_tables(kind, tmp_path, model):
    raw, says = TABLES[kind]
    with pytest.raises(ValueError, match=says): tabular.measure(model, csv(tmp_path, raw))
    assert model.calls == 0

def test_missing_file(tmp_path, model):
    with pytest.raises(FileNotFoundError, match='no file'): tabular.measure(model, tmp_path/'none.csv')

def test_unknown_names(model):
    with pytest.raises(ValueError, match="did you mean 'titanic'"): tabular.measure(model, 'titanik')
    with pytest.raises(ValueError, match='smollm2'): tabular.measure('gpt4', 'iris')
    with pytest.raises(ValueError, match='quick'): tabular.measure(model, 'iris', preset='huge')

def test_target_that_does_not_exist(model):
    with pytest.raises(ValueError, match="did you mean 'species'"): tabular.predict(model, 'iris', target='specie')
    assert model.calls == 0

def test_columns_without_values_are_measured(tmp_path, model):
    rows = '\n'.join(f'{i},,{i%3}' for i in range(80))
    t = data.load(csv(tmp_path, f'id,gone,kind\n{rows}\n'))
    assert t.empty == ['gone']
    m = tabular.measure(model, t, n=4, samples=3, show=False)
    assert set(m.what) >= {'row_completion', 'header', 'feature_values'}

def test_too_few_rows_for_the_prefix(tmp_path, model):
    rows = '\n'.join(f'{i},{i+1}' for i in range(20))
    with pytest.raises(ValueError, match='fewer rows or shots'):
        tabular.measure(model, csv(tmp_path, f'a,b\n{rows}\n'), preset='paper')
    assert model.calls == 0

@pytest.mark.parametrize('bad', [dict(n=-1), dict(n=0), dict(samples=-2)])
def test_negative_n(bad, model):
    with pytest.raises(ValueError, match='at least 1'): tabular.measure(model, 'iris', **bad)
    assert model.calls == 0

def test_window_too_short(tmp_path):
    m = lm.load('smollm2', store=lm.Store(tmp_path/'s.sqlite'))
    window, m.window = m.window, 512
    try:
        with pytest.raises(lm.ContextError, match='fewer shots or rows'):
            tabular.row_completion(m, 'titanic', n=3, rows=15, shots=5)
    finally: m.window = window
    assert m.calls == 0

def test_no_key_and_no_network(model, monkeypatch, tmp_path):
    for k in ('OPENAI_API_KEY', 'OPENAI_BASE_URL', 'AZURE_OPENAI_ENDPOINT'): monkeypatch.delenv(k, raising=False)
    gpt = lm.load('openai:gpt-4', store=lm.Store(tmp_path/'g.sqlite'))
    with pytest.raises(RuntimeError, match='OPENAI_API_KEY'): tabular.header(gpt, 'iris')
    with pytest.raises(FileNotFoundError, match='smollm2'): lm.load('hf:nobody/nothing-of-that-name')

def test_model_that_cannot(tmp_path):
    mute = lm.LM('mute', 'mute', store=lm.Store(tmp_path/'m.sqlite'))
    with pytest.raises(lm.Unsupported, match="cannot answer 'generate'"): tabular.measure(mute, 'iris')

def test_own_data_among_the_examples(model):
    renamed = data.load(data.load('iris').df, name='flowers')
    with pytest.raises(tabular.GuardError, match='flowers'): tabular.header(model, renamed, names=['iris'])

def test_misspelt_parameter():
    r = subprocess.run([sys.executable, '-m', 'memnb.run', 'run', 'smoke', '-p', 'sampels', '3'],
                       capture_output=True, text=True)
    assert r.returncode == 2 and 'samples' in r.stderr and 'Traceback' not in r.stderr, r.stderr

def test_what_was_answered_is_kept(tmp_path):
    "A backend that fails halfway: a second call asks only for the rest"
    class Tired(Echo):
        def _answer(self, todo):
            for i, _ in enumerate(todo):
                if self.calls == 3 and not getattr(self, 'rested', False): raise lm.NoAnswer('tired')
                yield i, '1,2'
    m = Tired('tired', 'tired', 'chat', store=lm.Store(tmp_path/'t.sqlite'))
    with pytest.raises(lm.NoAnswer): tabular.row_completion(m, 'wine', n=8, rows=5, shots=1)
    m.rested = True
    r = tabular.row_completion(m, 'wine', n=8, rows=5, shots=1)
    assert len(r) == 8 and m.calls == 8

def test_measure_takes_a_dataframe(model):
    df = pd.DataFrame(dict(a=range(60), b=[i*7 % 11 for i in range(60)], c=list('xyz')*20))
    m = tabular.measure(model, df, n=3, samples=3, show=False)
    assert m.dataset.unique().tolist() == ['table'] and m[m.what == 'row_completion'].n.iloc[0] == 3
