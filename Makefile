# Everything a new machine needs is Python 3.11 (or newer) and make; the rest goes into .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# The generator of the manual, and the libraries that its pages show.
MANUAL := $(VENV)/.manual
PYTEST := $(BIN)/pytest -n 4 --dist worksteal -q

# Compiled modules are kept. Without them each process of each test compiles hundreds of modules again,
# which takes longer than most tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: docs demo test test-all quick debian browser assets screenshots pythons loops check lint-lua bench bench-peers bench-limits pictures planted-bugs model admission chaos clean

demo: $(READY)
	$(BIN)/forge-jobs demo $(if $(STORAGE),--storage "$(STORAGE)") $(FOLDER)

# The tests of every day, on servers from wheels.
test: $(READY)
	$(PYTEST) -m "not long"

# And those that are long and rare. tests/debian is left out: it needs Debian's packages.
test-all: test docs
	$(PYTEST) -m long

# The manual, as build/manual/index.html. A warning is an error: a broken link, a name without a docstring.
docs: $(MANUAL)
	$(BIN)/sphinx-build -q -W --keep-going -b html -c docs . build/manual
	@echo "The manual: build/manual/index.html"

# What a developer runs all day: on a file, without the modules that take seconds.
quick: export FORGE_TEST_BACKENDS = sqlite
quick: $(READY)
	$(PYTEST) -m "not long and not slow" tests/unit tests/runtime tests/conformance \
	    -k "not postgres and not redis and not all_stores and not every_way"

# Once more on the servers that Debian packages, where .ci/run installs them. The other ways of
# postgres-pooled are a matter of the client, and are tried on the servers of wheels.
debian: export FORGE_TEST_PG_BIN ?= /usr/lib/postgresql/15/bin
debian: export FORGE_TEST_REDIS_SERVER ?= /usr/bin/redis-server
debian: $(READY)
	$(PYTEST) tests/debian tests/conformance tests/backends \
	    --ignore tests/conformance/model -k "not sqlite and not cluster and not postgres-pooled"

# The dashboard and the manual in Chromium: FORGE_TEST_CHROMIUM, or chromium on PATH, which .ci/run installs.
browser: $(READY) docs
	$(BIN)/pytest -n 2 --dist worksteal -q tests/browser

# Files of others that are kept here, by npm pack. Neither users nor tests need npm.
assets: $(READY)
	$(BIN)/python -m tests.browser.assets

# The pages of the dashboard for the manual, from the data of the tests, in Chromium.
screenshots: $(READY)
	$(BIN)/python -m tests.browser.pictures docs/pictures/dashboard

# Once more on every other Python that pyproject.toml declares and this machine has, each in an
# environment of its own. Then with eager tasks, which Python has from 3.12 on, and on uvloop.
pythons: $(READY)
	set -e; for python in $$($(BIN)/python -m tests.packaging.pythons); do \
	    venv=.venv-$$(basename $$python); \
	    $(MAKE) quick VENV=$$venv PYTHON=$$python; \
	    FORGE_TEST_LOOP=eager $(MAKE) loops VENV=$$venv PYTHON=$$python; \
	done
	FORGE_TEST_LOOP=uvloop $(MAKE) loops

loops: export FORGE_TEST_BACKENDS = sqlite
loops: $(READY)
	$(PYTEST) -m "not long" tests/runtime tests/executors tests/commands -k "not postgres and not redis"

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.meta.module_sizes
	$(BIN)/python -m tests.meta.prose

# The scripts of Redis, by luacheck: Debian's package lua-check, which .ci/run installs.
lint-lua: $(READY)
	$(BIN)/python -m tests.meta.lua

planted-bugs: $(READY)
	$(BIN)/python -m tests.meta.planted_bugs $(if $(OF),--of $(OF)) $(if $(BACKEND),--backend $(BACKEND)) $(if $(ONLY),--only "$(ONLY)")

# Every store against the model, for as long as EXAMPLES takes: 10,000 programs are hours.
# The programs are the same on each run. With RANDOM=1 they are others on each run.
model: export FORGE_MODEL_EXAMPLES = $(or $(EXAMPLES),2000)
model: export FORGE_MODEL_STEPS = $(or $(STEPS),60)
model: export FORGE_MODEL_RANDOM = $(or $(RANDOM),0)
model: $(READY)
	$(BIN)/pytest -n 2 -q tests/conformance/model $(if $(BACKEND),-k "$(BACKEND)")

# Simulated pods on a store, by seeds: FORGE_TEST_ADMISSION_SEED repeats one.
admission: export FORGE_TEST_ADMISSION_SEEDS = $(or $(SEEDS),10000)
admission: export FORGE_TEST_BACKENDS = $(or $(BACKEND),sqlite)
admission: $(READY)
	$(BIN)/pytest -n 2 -q tests/admission

# Pods and the store killed, frozen and cut off while jobs keep coming: docs/reliability.md.
# With -j 3 three stores at once: a run computes for a quarter of the time, and waits for leases.
CHAOS := $(addprefix chaos-,$(or $(BACKEND),sqlite postgres redis pooler standby sentinel cluster shards))
chaos: $(CHAOS)

.PHONY: $(CHAOS)
$(CHAOS): chaos-%: $(READY)
	$(BIN)/python -m tests.chaos --backend $* --rounds $(or $(ROUNDS),20) $(if $(SEED),--seed $(SEED))

# Our own figures, other libraries beside ours, and the bare stores: docs/performance.md. BENCH holds
# further options, for example BENCH="--quick --only drain".
bench: $(READY)
	$(BIN)/python -m bench $(if $(STORAGE),--storage "$(STORAGE)") $(BENCH)

bench-peers: $(READY)
	$(BIN)/python -m bench.peers $(if $(STORAGE),--storage "$(STORAGE)") $(BENCH)

bench-limits: $(READY)
	$(BIN)/python -m bench.limits $(if $(STORAGE),--storage "$(STORAGE)") $(BENCH)

# docs/pictures from bench/results; matplotlib comes into an environment of its own.
pictures: $(READY)
	$(BIN)/python -m bench.pictures

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "forge_jobs needs Python 3.11 or newer; point PYTHON at one: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up $(VENV), once ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(MANUAL): $(READY)
	@echo "Adding what the manual is built with ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs]'
	@touch $@

clean:
	rm -rf $(VENV) build .venv-peers .venv-python* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
