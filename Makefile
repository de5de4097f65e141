# Everything a new machine needs is Python 3.11 (or newer) and make; the rest goes into .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test check bench planted-bugs clean

demo: $(READY)
	$(BIN)/forge-jobs demo $(if $(STORAGE),--storage "$(STORAGE)") $(FOLDER)

test: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal -q

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.meta.module_sizes

planted-bugs: $(READY)
	$(BIN)/python -m tests.meta.planted_bugs

bench: $(READY)
	$(BIN)/python -m bench

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "forge_jobs needs Python 3.11 or newer; point PYTHON at one: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up $(VENV), once ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
