# memnb: `make` lists the targets. Everything lives in .venv; PYTHON=... picks the interpreter it is made from.
PYTHON  ?= python3
PROFILE  = laptop
WORKERS  = 2
# runs of reproduce at a time: a run has all cores, and on two cores two runs side by side take longer
RUNS     = 1
BIN     := .venv/bin
CODE    := memnb tests tools docs
COMMA   := ,
export GOMP_SPINCOUNT := 3000
# whatever the machine says: what is imported is compiled once, not by each of a hundred processes
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup reproduce replay smoke diff plan export check test test-slow test-all mutate bench docs slides lab figures readme clean
.DELETE_ON_ERROR:
.SECONDARY:

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- use ---

# as root, too: containers often have no other user, and the server listens on this machine alone
lab: .venv/.ready-all-dev  ## start here: install what is missing, and open the pages in JupyterLab
	$(BIN)/jupyter lab --allow-root --notebook-dir=. --config=tools/lab.py

setup: .venv/.ready-all-dev  ## make the environment, fetch the model and the data
	$(BIN)/memnb fetch

reproduce: .venv/.ready-all-dev  ## set up, run the laptop profile of every paper, and report
	$(BIN)/memnb fetch --packed
	@# unpacked while the first runs begin, which need no model
	$(BIN)/memnb fetch & \
	$(BIN)/memnb run $(PROFILE) --workers $(RUNS); code=$$?; \
	wait $$! || code=1; \
	$(BIN)/memnb report; \
	exit $$code

replay: .venv/.ready-all-dev  ## run every page on the answers that ship, without a model: two minutes
	$(BIN)/memnb fetch
	$(BIN)/memnb replay --workers $(WORKERS)

smoke: .venv/.ready-all-dev  ## run every paper notebook once with its small default parameters
	$(BIN)/memnb fetch
	$(BIN)/memnb run smoke

diff: .venv/.ready-all-dev  ## say which numbers and verdicts differ from the ones that ship
	$(BIN)/memnb diff

plan: .venv/.ready-all-dev  ## say what `make reproduce` would run, and for how long
	$(BIN)/memnb plan $(PROFILE)

docs: .venv/.ready-all-docs  ## build the site below _docs: the notebooks and the report, readable offline
	$(BIN)/sphinx-build -q -W --keep-going -b html docs _docs
	@echo 'open _docs/index.html'

slides: .venv/.ready-all-dev  ## write a talk and a handout about every paper into slides/
	for talk in data/papers/*/talk.yaml; do $(BIN)/memnb slides $$(basename $$(dirname $$talk)) || exit 1; done

# --- work on memnb ---

export: .venv/.ready-all-dev  ## format the notebooks, write memnb/*.py from them, and clean them
	$(BIN)/ruff check -q --fix --select I nbs
	$(BIN)/ruff format -q nbs $(CODE)
	$(BIN)/nbdev_export
	$(BIN)/nbdev_clean

check: .venv/.ready-all-dev  ## before a commit, half a minute: format, lint, exports, arrows, links, packaging
	$(BIN)/ruff format --check -q nbs $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/pytest tests/test_repo.py -q -n $(WORKERS)

test: .venv/.ready-all-dask-dev  ## set up and run the tests and the pages: eight minutes of two idle cores
	$(BIN)/memnb fetch
	$(BIN)/pytest tests -q -n $(WORKERS) -m 'not slow'

test-slow: .venv/.ready-all-browser-dask-dev-docs-serve  ## what `make test-all` has beyond `make test`: long notebooks, site, browser, real server, many kills
	$(BIN)/memnb fetch
	$(BIN)/pytest tests -q -n $(WORKERS) -m slow

test-all: test test-slow  ## every test and every notebook

mutate: .venv/.ready-all-dev  ## break memnb in forty places, in a copy, and say which test notices each: two minutes of two idle cores
	$(BIN)/memnb fetch
	$(BIN)/python tools/mutate.py -j $(WORKERS)

bench: .venv/.ready-all-bench  ## measure speed against tabmemcheck and transformers, half an hour or so
	$(BIN)/memnb fetch
	for file in tests/bench_*.py; do $(BIN)/python $$file || exit 1; done

figures: .venv/.ready-all-dev  ## draw the figures that ship anew from the recorded rows, also as text
	$(BIN)/python tools/figures.py
	$(BIN)/python tools/figures.py --text

readme: .venv/.ready-all-dev  ## write README.md from nbs/index.ipynb
	$(BIN)/python tools/readme.py

clean:  ## remove the environment and build leftovers (results, figures and the answer store stay)
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache

# --- the environment ---

# .ready-all-dev means: memnb is installed with the extras all and dev. The torch build comes first
# (a CPU build where pip is set up to find one), so that nothing after it pulls another.
.venv/.ready-%: settings.ini setup.py pyproject.toml constraints.txt | .venv/bin/pip
	$(BIN)/pip install -q --no-compile $(shell grep '^torch==' constraints.txt)
	$(BIN)/pip install -q --no-compile -c constraints.txt -e '.[$(subst -,$(COMMA),$*)]'
	@touch $@

.venv/bin/pip:
	@$(PYTHON) -c 'import sys, configparser as c; p = c.ConfigParser(); p.read("settings.ini"); \
	low = p["DEFAULT"]["min_python"]; ok = sys.version_info >= tuple(map(int, low.split("."))); \
	ok or sys.exit(f"memnb needs Python {low} or newer, {sys.executable} is {sys.version.split()[0]}: make PYTHON=python{low} ...")'
	$(PYTHON) -m venv .venv
