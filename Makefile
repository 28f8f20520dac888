# Everything sets itself up: needed are git, make, a C compiler, Rust (1.95 or later), Python 3.11 or later with venv.

PYTHON ?= python3
CARGO ?= cargo
VENV := .venv
BIN := $(VENV)/bin
CONTEND := $(BIN)/contend
# CI refuses warnings; elsewhere a newer clippy may know more of them.
CLIPPY_FLAGS ?= $(if $(CI),-D warnings)
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Python tests run side by side; some use all cores themselves.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal
# The same code, the same verdict: property tests draw the same cases each time. New ones: make fuzz.
SEED ?= 1
STUDIES := $(patsubst studies/%/study.toml,%,$(wildcard studies/*/study.toml))

.DEFAULT_GOAL := help
.PHONY: help demo test docs studies fits slow-fits quick bench build lint rust-test python-test fuzz clean lock

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

demo: build ## Build, run the shipped recording on an 88-CPU machine under two wake-up paths, say why they differ
	@sh scenarios/demo.sh $(CONTEND)

test: lint ## Everything but whole studies: formats, lints, all tests (20 to 26 minutes on 2 cores)
	$(CARGO) test --workspace --locked --no-run --quiet
	@# The model checkers keep one core busy; the other builds.
	@$(MAKE) --no-print-directory -j2 rust-test build
	@$(MAKE) --no-print-directory python-test
	@echo "make test: all passed"

quick: build $(VENV)/dev-ready ## Part of the tests (under a minute after a build)
	$(CARGO) test --quiet --lib -p contend-platform -p contend-locks -p contend-machine -p contend-sched -p contend
	$(PYTEST) -q -m "not slow"

docs: build $(VENV)/dev-ready ## Build the docs site into site/ (the tests build it, too)
	@# Not --quiet: it would also silence --strict.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html"

studies: fits ## Reproduce the published studies whole (some 45 minutes on 2 cores), their fits first
	@$(CONTEND) reproduce

# Those that take minutes; the tests derive the others.
SLOW_FITS := cluster-wakeup-2023 cpu-buddies-2012 idle-cpu-search-2019 ple-directed-yield-2012
# A trial of the last, boots of 80 virtual CPUs, takes a CPU-minute: its values are compared with their neighbours.
slow-fits: $(patsubst %,fit-%,$(filter-out ple-%,$(SLOW_FITS))) $(patsubst %,near-%,$(filter ple-%,$(SLOW_FITS)))

fits: $(STUDIES:%=fit-%) ## Derive the studies' fitted parameters again, each from the rows it names (two at a time: make -j2 fits)

fit-%: build
	@$(CONTEND) fit $* --check

near-%: build
	@$(CONTEND) fit $* --check --near

bench: build $(VENV)/dev-ready ## The project's figures: dispatches and messages a CPU-second, events a second
	$(CARGO) bench --workspace --locked
	$(BIN)/python scenarios/figures.py

build: $(VENV)/ready ## Build the release wheel into .venv; the tool is .venv/bin/contend
	MAKEFLAGS= $(BIN)/maturin develop --release --locked --quiet >/dev/null
	@$(CONTEND) --version

lint: $(VENV)/dev-ready ## Formatters, clippy, the lock crate without std and as a package, ruff, mypy
	@if $(CARGO) fmt --version >/dev/null 2>&1; then $(CARGO) fmt --all --check; \
	else echo "SKIPPED: cargo fmt is not installed (rustup component add rustfmt)" >&2; fi
	@if $(CARGO) clippy --version >/dev/null 2>&1; then \
		$(CARGO) clippy --workspace --all-targets --locked --quiet -- $(CLIPPY_FLAGS); \
	else echo "SKIPPED: cargo clippy is not installed (rustup component add clippy)" >&2; fi
	$(CARGO) check --quiet --locked -p contend-locks --no-default-features --features lock_api
	RUSTDOCFLAGS="$(CLIPPY_FLAGS)" $(CARGO) doc --quiet --locked --no-deps --all-features -p contend-platform -p contend-locks
	$(CARGO) package --quiet --locked --offline --no-verify --allow-dirty -p contend-platform -p contend-locks
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

rust-test: ## All Rust tests
	MAKEFLAGS= PROPTEST_RNG_SEED=$(SEED) $(CARGO) test --workspace --locked
	MAKEFLAGS= PROPTEST_RNG_SEED=$(SEED) $(CARGO) test --locked -p contend-platform -p contend-locks --all-features

python-test: build $(VENV)/dev-ready ## Python: stubs, tests
	$(BIN)/python -m mypy.stubtest contend._core
	$(PYTEST)

fuzz: ## The property tests with new cases, until one fails or Ctrl-C; it says how to repeat what failed
	@tests=$$(grep -rl 'proptest!' crates/*/tests crates/*/src | sed 's,^crates/\([^/]*\)/.*,contend-\1,' | sort -u | sed 's/^/-p /'); \
	while seed=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' '); do \
		echo "PROPTEST_RNG_SEED=$$seed $(CARGO) test --release" $$tests; \
		PROPTEST_RNG_SEED=$$seed $(CARGO) test --quiet --release --locked $$tests || exit 1; \
	done

lock: $(VENV)/ready ## Pin the newest Python packages that fit requirements*.in
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --upgrade --generate-hashes --universal --python-version 3.11 --no-header \
		requirements.in -o requirements.lock
	$(BIN)/uv pip compile --quiet --upgrade --generate-hashes --universal --python-version 3.11 --no-header \
		requirements-dev.in -o requirements-dev.lock

clean: ## Remove what was built
	rm -rf $(VENV) results site python/contend/*.so .pytest_cache .mypy_cache .ruff_cache
	$(CARGO) clean --quiet

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or later is needed; name it: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/ready: requirements.lock | $(VENV)/bin/python
	$(BIN)/pip install --quiet --require-hashes -r requirements.lock
	@touch $@

$(VENV)/dev-ready: requirements-dev.lock | $(VENV)/ready
	$(BIN)/pip install --quiet --require-hashes -r requirements-dev.lock
	@touch $@
