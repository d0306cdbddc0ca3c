# What CI runs is what people run. `make help` lists the commands.
PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/.installed
PORT   ?= 8000
BUILD  := $(BIN)/jupyter-book build . --all -W -n --keep-going
SOURCES := _config.yml _toc.yml $(shell find chapters tools -type f -not -path '*/.*' -not -name '*.pyc')

.PHONY: help book test serve notebooks exercises bench lab lint clean
.DELETE_ON_ERROR:

help: ## list these commands
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-10s %s\n", $$1, $$2}'

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info[:2] <= (3, 13); ok or sys.exit("the book needs Python 3.11 to 3.13, and %s is %s: try  make PYTHON=python3.12 ..." % (sys.executable, sys.version.split()[0]))'
	@echo "== environment: .venv (once; a few minutes, most of them for torch)"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements.txt
	@touch $(READY)

_build/html/index.html: $(READY) $(SOURCES)
	@echo "== pages"
	$(BUILD)
	@touch $@

book: _build/html/index.html ## build the pages, from nothing if need be
	@echo
	@echo "The book is built. Open  _build/html/index.html  or run  make serve"

test: $(READY) lint book ## lint, the library's tests, every notebook re-executed, the pages in a real browser
	@echo "== tests, notebooks and pages"
	$(BIN)/python -m pytest -n 2 --dist loadfile --nbval --nbval-current-env tests chapters

lint: $(READY) ## ruff and mypy
	@echo "== lint"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

serve: book ## build, then show the book at http://localhost:8000
	@echo "http://localhost:$(PORT)   (stop with Ctrl-C)"
	@$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

notebooks: $(READY) ## re-execute every notebook and store its outputs
	$(BIN)/python tools/notebooks.py

exercises: $(READY) ## make the students' notebooks from the chapters
	$(BIN)/python tools/exercises.py

bench: $(READY) ## time and memory against other layers; rewrites chapters/speed.md and its picture
	$(BIN)/python tools/bench.py

lab: $(READY) ## open the notebooks in JupyterLab
	$(BIN)/jupyter lab chapters

clean: ## remove the built pages and caches, keep the environment
	rm -rf _build .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
