"`memnb replay`: a page from the answers that ship, in a process of its own, and nothing is computed."
import os, shutil, subprocess, sys
from memnb import core
from test_repo import TOP

def memnb(*words, **env):
    r = subprocess.run([sys.executable, '-m', 'memnb.cli', *map(str, words)], capture_output=True, text=True,
                       env=os.environ | dict(PYTHONPATH=str(TOP)) | env)
    return r.returncode, r.stdout, r.stderr

def test_a_page_from_the_answers_that_ship(tmp_path, home):
    "The page is executed and reported, the answers are taken in once, no model has to answer; again it takes no run"
    env = dict(MEMNB_STORE=str(tmp_path/'store.sqlite'))
    call = 'replay', '--only', 'capacity', '--workers', '1', '--out', tmp_path/'runs'
    code, out, err = memnb(*call, **env)
    assert code == 0 and '1 done' in out, out + err
    assert 'has to compute' not in err and 'were asked for' not in err, err
    assert (tmp_path/'runs/replay/capacity.ipynb').is_file() and (tmp_path/'runs/replay/report.html').is_file()
    assert not list(home.rglob('*.csv')) and not list(home.rglob('*.png'))  # what ships stays as it is
    new = [l.split()[-2] for l in out.splitlines() if l.startswith(('smollm2@', 'planted:'))]
    assert len(new) > 2 and {*new} != {'0'}
    code, out, err = memnb(*call, **env)
    assert code == 0 and '1 skipped' in out, out + err
    assert {l.split()[-2] for l in out.splitlines() if l.startswith(('smollm2@', 'planted:'))} == {'0'}

def test_a_damaged_file_stops_it(tmp_path, home, monkeypatch):
    "Before a page runs and before an answer is taken in"
    from memnb import cli, replay
    from memnb.store import Store
    monkeypatch.setenv('MEMNB_STORE', str(tmp_path/'store.sqlite'))
    shipped = shutil.copytree(core.share_dir('answers'), tmp_path/'answers')
    file = sorted(shipped.glob('*.gz'))[-1]
    file.write_bytes(file.read_bytes()[:-1] + b'x')
    monkeypatch.setattr(replay, 'share_dir', lambda kind: tmp_path/kind)
    monkeypatch.setattr(cli, 'batch', lambda *a, **kw: 1/0)
    assert cli.main(['replay', '--out', str(tmp_path/'runs')]) == 2
    assert len(Store()) == 0 and not (tmp_path/'runs').exists()
