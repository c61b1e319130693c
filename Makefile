# `make help` lists the targets. Needs GNU make 3.81 or later, Python 3.11 or later, and Go where no temporal CLI is.

.PHONY: help demo test test-all test-stack test-containers check checked pictures bench lock audit dist clean

PY = .venv/bin/python
PACKAGES = .venv/.packages
# In several processes (tests/gate.py says how many), each with a server of its own; a module's tests stay together.
PYTEST = $(PY) -m pytest --numprocesses=auto --dist=loadscope --no-loadscope-reorder
# Without ROOM all tests; ROOM=core: those of the core alone; ROOM=mcp: those of an extra.
TESTS = $(if $(filter core,$(ROOM)),tests --ignore=tests/whole,$(if $(ROOM),extras/$(ROOM)))
COMPILE = $(PY) -m uv pip compile --quiet --universal --python-version=3.11 --generate-hashes $(UPGRADE)

# The first of these that is new enough: an old system Python often comes first on PATH.
FIND_PYTHON = for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$name; exit; fi; done

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile

demo: ## run one task whose first plan fails, on its own server
	@echo "[1/3] packages"
	@$(MAKE) --silent $(PACKAGES)
	@$(PY) -m runtime.dev_server "[2/3] server:"
	@echo "[3/3] demo"
	@$(PY) -m console.demo

test: checked ## the gate: format, lint, types, and a test of each behaviour; ROOM=core or ROOM=mcp: of a part
	$(PYTEST) -m "not full" $(TESTS)

test-all: checked ## every test, also the long ones, `test-stack` and `test-containers`; needs Go, PostgreSQL and Prometheus
	@$(PY) -m pip --disable-pip-version-check install --quiet --editable ".[libraries]"
	$(PYTEST) --hypothesis-profile=full
	@$(MAKE) --no-print-directory test-stack
	@TESTS_OPTIONAL=1 $(MAKE) --no-print-directory test-containers

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

pictures: ## make the pictures of README.md and docs from real runs, and those of every state of the page
	@echo "[1/3] packages"
	@$(MAKE) --silent $(PACKAGES)
	@$(PY) -m runtime.dev_server "[2/3] server:"
	@echo "[3/3] pictures"
	@$(PY) -m maintenance.pictures
	@$(PY) -m maintenance.page_pictures

bench: $(PACKAGES) ## compare speed and growth with the bare Temporal SDK; 20 minutes
	@$(PY) -m pip --disable-pip-version-check install --quiet --editable ".[benchmarks]"
	$(PY) -m benchmarks.steps
	$(PY) -m benchmarks.growth
	$(PY) -m benchmarks.turns
	$(PY) -m benchmarks.mcp

test-stack: ## test the stack of docker-compose.yml without containers: demo, crashes, benchmark; needs Go and PostgreSQL
	@echo "[1/4] packages"
	@$(MAKE) --silent $(PACKAGES)
	@$(PY) -m runtime.dev_server "[2/4] server:"
	@$(PY) -m tests.stack.programs "[3/4] stack:"
	@echo "[4/4] tests on the stack"
	@$(PY) -m pytest -v tests/stack

test-containers: ## test docker-compose.yml in containers of podman, as root and with stand-in images; CONTAINERS=docker: of docker
	@echo "[1/4] packages"
	@$(MAKE) --silent $(PACKAGES)
	@$(PY) -m runtime.dev_server "[2/4] server:"
	@$(PY) -m tests.containers.images "[3/4] containers:"
	@echo "[4/4] tests in containers"
	@$(PY) -m pytest -vv tests/containers

lock: $(PACKAGES) ## write requirements/*.txt from pyproject.toml; UPGRADE=--upgrade takes the newest versions
	@$(PY) -m pip --disable-pip-version-check install --quiet --editable ".[maintenance]"
	$(COMPILE) --all-extras --output-file=requirements/dev.txt pyproject.toml
	$(COMPILE) --extra=documents --extra=mcp --extra=otel --extra=postgresql --extra=provider --extra=web --constraint=requirements/dev.txt --output-file=requirements/runtime.txt pyproject.toml
	$(COMPILE) --constraint=requirements/dev.txt --output-file=requirements/build.txt requirements/build.in
	$(COMPILE) --constraint=requirements/dev.txt --constraint=requirements/build.txt --output-file=requirements/release.txt requirements/release.in

audit: $(PACKAGES) ## list advisories on the locked packages
	@$(PY) -m pip --disable-pip-version-check install --quiet --editable ".[maintenance]"
	@$(PY) -m maintenance.audit

dist: $(PACKAGES) ## build the wheel and the archive of sources of the last commit into dist/, and check them
	@$(PY) -m maintenance.dist

clean: ## delete what make and the tools created; the server program stays in the user's cache
	rm -rf .venv dist .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# .venv is created again if its Python is gone; packages are installed again only if pyproject.toml changed.
$(PACKAGES): pyproject.toml
	@$(PY) -c '' 2>/dev/null || { \
		python=`$(FIND_PYTHON)`; \
		if [ -z "$$python" ]; then \
			echo "No Python 3.11 or later is on PATH: install one from https://www.python.org/downloads/." >&2; exit 1; \
		fi; \
		$$python -m venv --clear .venv; \
	}
	@$(PY) lab/maintenance/packages.py
	@touch $@
