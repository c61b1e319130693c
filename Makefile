# `make help` lists the targets. Needs GNU make 3.81 or later, Python 3.11 or later, and Go where no temporal CLI is.

.PHONY: help demo test test-all test-stack check checked pictures bench lock audit clean

PY = .venv/bin/python
PACKAGES = .venv/.packages
# In several processes (tests/gate.py says how many), each with a server of its own; a module's tests stay together.
PYTEST = $(PY) -m pytest --numprocesses=auto --dist=loadscope --no-loadscope-reorder
COMPILE = $(PY) -m uv pip compile --quiet --universal --python-version=3.11 --generate-hashes $(UPGRADE)

# The first of these that is new enough: an old system Python often stands before a new one.
FIND_PYTHON = for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$name; exit; fi; done

help: ## these lines
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile

demo: ## one task that meets a changed world, on a server of its own
	@echo "[1/3] packages"
	@$(MAKE) --silent $(PACKAGES)
	@$(PY) -m runtime.dev_server "[2/3] server:"
	@echo "[3/3] demo"
	@$(PY) -m console.demo

test: checked ## format, lint, types, and the tests of all that a change can break: the gate, under 10 minutes
	$(PYTEST) -m "not full"

test-all: checked ## every test, with long and repeated ones and those of `make test-stack`; needs Go and PostgreSQL
	$(PYTEST) --hypothesis-profile=full
	@$(MAKE) --no-print-directory test-stack

checked:
	@echo "[1/3] packages"
	@$(MAKE) --silent $(PACKAGES)
	@$(PY) -m runtime.dev_server "[2/3] server:"
	@echo "[3/3] checks and tests"
	@$(MAKE) --no-print-directory check

check: $(PACKAGES) ## format, lint and types only
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

pictures: ## make the pictures of README.md from a real run
	@echo "[1/3] packages"
	@$(MAKE) --silent $(PACKAGES)
	@$(PY) -m runtime.dev_server "[2/3] server:"
	@echo "[3/3] pictures"
	@$(PY) -m maintenance.pictures

bench: $(PACKAGES) ## speed and growth against the bare Temporal SDK, a quarter of an hour
	@$(PY) -m pip --disable-pip-version-check install --quiet --editable ".[benchmarks]"
	$(PY) -m benchmarks.steps
	$(PY) -m benchmarks.growth
	$(PY) -m benchmarks.turns

test-stack: ## the stack of docker-compose.yml, run without containers: demo, crash tests, benchmark; needs Go and PostgreSQL
	@echo "[1/4] packages"
	@$(MAKE) --silent $(PACKAGES)
	@$(PY) -m runtime.dev_server "[2/4] server:"
	@$(PY) -m tests.stack.programs "[3/4] stack:"
	@echo "[4/4] tests on the stack"
	@$(PY) -m pytest -v tests/stack

lock: $(PACKAGES) ## requirements/*.txt anew from pyproject.toml; with UPGRADE=--upgrade all of them to the newest
	@$(PY) -m pip --disable-pip-version-check install --quiet --editable ".[maintenance]"
	$(COMPILE) --all-extras --output-file=requirements/dev.txt pyproject.toml
	$(COMPILE) --extra=postgresql --constraint=requirements/dev.txt --output-file=requirements/runtime.txt pyproject.toml
	$(COMPILE) --constraint=requirements/dev.txt --output-file=requirements/build.txt requirements/build.in

audit: $(PACKAGES) ## advisories on the locked packages
	@$(PY) -m pip --disable-pip-version-check install --quiet --editable ".[maintenance]"
	@$(PY) -m maintenance.audit

clean: ## what make and the tools made; the server's program stays in the user's cache
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# .venv is made anew where its Python is gone; the packages are installed again only when pyproject.toml changed.
$(PACKAGES): pyproject.toml
	@$(PY) -c '' 2>/dev/null || { \
		python=`$(FIND_PYTHON)`; \
		if [ -z "$$python" ]; then \
			echo "No Python 3.11 or later is on PATH: install one from https://www.python.org/downloads/." >&2; exit 1; \
		fi; \
		$$python -m venv --clear .venv; \
	}
	@$(PY) -m pip --disable-pip-version-check install --quiet --editable ".[dev]"
	@touch $@
