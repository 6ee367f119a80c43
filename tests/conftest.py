"Environment of the whole suite: quiet threads (before torch is imported) and an answer store of its own."
import os, shutil, sys, tempfile
from pathlib import Path
import pytest

os.environ.setdefault('OMP_WAIT_POLICY', 'PASSIVE')
os.environ.setdefault('OMP_NUM_THREADS', str(max(1, (os.cpu_count() or 2) // 2)))
os.environ.setdefault('MPLBACKEND', 'agg')
os.environ.setdefault('TOKENIZERS_PARALLELISM', 'false')
os.environ.pop('PYTHONDONTWRITEBYTECODE', None) # some containers set it, and each of some hundred processes
sys.dont_write_bytecode = False # would compile torch anew
_folder = tempfile.mkdtemp(prefix='memnb-')
os.environ['MEMNB_STORE'] = str(Path(_folder)/'store.sqlite')
os.environ.pop('MEMNB_HOME', None)

@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    "Of several processes (`-n 2`) one takes all tests of a file, which share servers and pages; notebooks are spread"
    from xdist.scheduler import LoadScopeScheduling
    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split('::')[0]
            return nodeid if Path(file).stem in ('test_notebooks', 'test_repo') else file
    return Files(config, log)

def pytest_unconfigure(config):
    shutil.rmtree(_folder, ignore_errors=True)

@pytest.fixture(scope='session')
def top():
    "The checkout"
    return Path(__file__).resolve().parents[1]

@pytest.fixture
def home(tmp_path, monkeypatch):
    "A folder that takes the place of the checkout for everything that memnb writes"
    folder = tmp_path/'home'
    folder.mkdir()
    monkeypatch.setenv('MEMNB_HOME', str(folder))
    return folder
