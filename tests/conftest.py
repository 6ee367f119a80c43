"Environment of the whole suite: quiet threads (before torch is imported) and an answer store of its own."

import contextlib
import gc
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

# the same examples each time, and no verdict about the speed of a machine that is busy
hypothesis_settings.register_profile(
    "memnb",
    max_examples=30,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
hypothesis_settings.load_profile("memnb")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault(
    "OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 2) // 2))
)
# the engines in C, where they can be had: no number depends on a trial of speed
os.environ.setdefault("MEMNB_ENGINE", "c")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.pop(
    "PYTHONDONTWRITEBYTECODE", None
)  # some containers set it, and each of some hundred processes
sys.dont_write_bytecode = False  # would compile torch anew
_folder = tempfile.mkdtemp(prefix="memnb-")
os.environ["MEMNB_STORE"] = str(Path(_folder) / "store.sqlite")
os.environ.pop("MEMNB_HOME", None)

# what takes minutes begins first, whole files before single notebooks, the longest of both before the others
LONG = [
    "test_batch.py",
    "test_lab.py",
    "test_lines.py",
    "test_server.py",
    "test_docs.py",
    "test_difference.py",
    "test_icl.py",
    "test_sixth.py",
    "test_store.py",
    "test_ask.py",
    "test_claims.py",
    "test_report.py",
    "test_engine.py",
    "test_run.py",
    "test_server_habits.py",
    "test_bad_input.py",
    "test_facts.py",
    "test_models.py",
    "test_teaching.py",
    "test_results.py",
    "test_replay.py",
    "[rooms/hf]",
    "[14_",
    "[rooms/plant]",
    "[12_",
    "[tabular/measuring]",
    "[13_",
    "[compare/measuring]",
    "[iclinf/ladder]",
    "[compare/asking]",
    "[compare/claims]",
    "[iclinf/measuring]",
    "[10_",
    "[15_",
    "[11_",
    "[compare/figures]",
    "[iclinf/influence]",
    "[contextual/figures]",
]
# what is spread test by test comes last, behind all other files, so that several processes end together
LAST = ["test_figures.py", "test_notebooks.py", "test_repo.py"]


def _place(item):
    "Where a test stands in the order of the suite"
    for i, name in enumerate(LONG):
        if name in item.nodeid:
            return i
    for i, name in enumerate(LAST):
        if name in item.nodeid:
            return len(LONG) + 1 + i
    return len(LONG)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("serve") or item.get_closest_marker(
            "browser"
        ):
            item.add_marker("slow")
    items.sort(key=_place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    "Of several processes (`-n 2`) one takes all tests of a file, which share servers and pages; notebooks are spread"
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split("::")[0]
            apart = ("test_notebooks", "test_repo", "test_figures")
            return nodeid if Path(file).stem in apart else file

    config.option.loadscopereorder = (
        False  # the order of the tests is that of `LONG`
    )
    return Files(config, log)


def pytest_unconfigure(config):
    shutil.rmtree(_folder, ignore_errors=True)


@contextlib.contextmanager
def environment_kept():
    "The variables of the environment as they were before: commands of the command line set some for the processes they start"
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@pytest.fixture(autouse=True)
def no_variable_outlives_its_test():
    "What one test sets, another one in the same process must not find: notebooks would run with it"
    with environment_kept():
        yield


@pytest.fixture(autouse=True, scope="module")
def garbage_is_looked_for_among_new_objects():
    """Libraries collect garbage now and then (statsmodels in each of Holm's tests), and what is loaded already is none:
    with a million objects of torch and others each time takes a quarter of a second
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def top():
    "The checkout"
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def between(tmp_path_factory):
    "A folder that all processes of a session share"
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def with_what_ships(path):
    "A store with the answers that ship, which `test_replay.py` compares with the model's own"
    from memnb.run.replay import take_in
    from memnb.store import Store

    take_in(Store(path))
    return path


@pytest.fixture(scope="session")
def shipped_answers(between):
    "A store for the pages"
    return with_what_ships(between / "pages/store.sqlite")


@pytest.fixture(scope="session")
def answers(between):
    "A store for all other notebooks of papers: what one of them has asked, the next need not compute"
    return with_what_ships(between / "answers/store.sqlite")


@pytest.fixture
def home(tmp_path, monkeypatch):
    "A folder that takes the place of the checkout for everything that memnb writes"
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("MEMNB_HOME", str(folder))
    return folder
