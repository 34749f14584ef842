# Headrace: `make help` says what there is.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
CONSTRAINTS := constraints.txt
SECONDS ?=
RPS ?= 10
SEED ?= 1
JSON ?=
PICKER ?=
NAME ?= route_update
# Half again as many as cores, 4 at most: tests of real programs wait more than they compute.
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
WORKERS ?= $(shell n=$$(( ($(CORES) * 3 + 1) / 2 )); echo $$(( n < 4 ? n : 4 )))
PROTO := protos/headrace_pb/v1/telemetry.proto
SRC := shared/src/headrace_shared agent/src controller/src lab/src

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-real test test-extra lint lint-proof types proto proto-check docs docs-pages deploy-files docs-check wheels bench clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv with everything installed, editable

$(STAMP): $(CONSTRAINTS) requirements-dev.txt shared/pyproject.toml agent/pyproject.toml controller/pyproject.toml lab/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Headrace needs Python 3.11 or later; run make PYTHON=/path/to/python3.11 setup"; exit 2; }
	@echo "setup: making $(VENV) (about a minute)"
	@$(PYTHON) -m venv $(VENV) \
		|| { echo "setup: $(PYTHON) cannot make $(VENV); on Debian and Ubuntu: apt install python3-venv, then make again"; exit 2; }
	@PIP_CONSTRAINT=$(CURDIR)/$(CONSTRAINTS) $(BIN)/python -m pip install -q --disable-pip-version-check \
		-r requirements-dev.txt -e shared -e agent -e controller -e lab \
		|| { echo "setup: packages could not be installed; is a package index reachable (HTTPS_PROXY, PIP_INDEX_URL)? then make again"; exit 2; }
	@touch $(STAMP)
	@echo "setup: done; the programs are in $(BIN)"

demo: $(STAMP) ## Three sites, nine cells, a real Envoy, load, a kill (SECONDS= RPS= SEED= JSON= PICKER=1)
	@$(BIN)/headrace-lab demo $(if $(filter-out 0,$(PICKER)),--picker) $(if $(SECONDS),--seconds $(SECONDS)) --rps $(RPS) --seed $(SEED) $(if $(JSON),--json $(JSON))

demo-real: $(STAMP) ## The same over three real vLLM engines on this CPU (SECONDS= SEED= JSON=)
	@$(BIN)/headrace-lab demo-real $(if $(SECONDS),--seconds $(SECONDS)) --seed $(SEED) $(if $(JSON),--json $(JSON))

test: $(STAMP) ## Unit, simulation, integration and real-Envoy tests
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile

test-extra: $(STAMP) ## Tests that need root, a Debian package, or requirements-extra.txt
	@PIP_CONSTRAINT=$(CURDIR)/$(CONSTRAINTS) $(BIN)/python -m pip install -q --disable-pip-version-check -r requirements-extra.txt \
		|| echo "test-extra: requirements-extra.txt could not be installed; its tests are skipped"
	@$(BIN)/python -m pytest -q -m extra -n 2 --dist loadfile tests

lint: $(STAMP) ## ruff, formatting and the layer rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

lint-proof: $(STAMP) ## Plant a violation of each layer rule in a copy; each must be caught
	@$(BIN)/python tests/support/planted.py

types: $(STAMP) ## mypy --strict
	@$(BIN)/mypy $(SRC)

proto: $(STAMP) ## Write the stubs from protos/
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -Iprotos --python_out=shared/src \
		--grpc_python_out=shared/src --mypy_out=quiet:shared/src --mypy_grpc_out=quiet:shared/src $(PROTO)

proto-check: proto ## Fail when the committed stubs differ from protos/
	@git diff --exit-code --stat -- shared/src/headrace_pb \
		|| { echo "the committed stubs are not what protos/ gives: run make proto and commit"; exit 1; }

docs: docs-pages ## Build the documentation as a site in out/site; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "docs: open out/site/index.html"

docs-pages: $(STAMP) ## Write the pages that are generated from code
	@$(BIN)/python -m headrace_controller.lifecycle > docs/lifecycle.md
	@$(BIN)/headrace-agent config reference > docs/reference-agent.md
	@$(BIN)/headrace-controller config reference > docs/reference-controller.md

deploy-files: $(STAMP) ## Write dashboards and other files under deploy/ that follow from others
	@$(BIN)/python -m deploy.write

docs-check: docs ## Fail when a generated page differs from the code, or a link leads nowhere
	@git diff --exit-code --stat -- docs/lifecycle.md docs/reference-agent.md docs/reference-controller.md \
		|| { echo "a generated page is not what the code gives: run make docs-pages and commit"; exit 1; }

wheels: $(STAMP) ## Build the four wheels; install and import each alone
	@$(BIN)/python tests/support/wheels.py

bench: $(STAMP) ## Run a benchmark (NAME=route_update JSON=FILE)
	@$(BIN)/python -m benchmarks.$(NAME) $(if $(JSON),--json $(JSON))

clean: ## Remove the environment and everything generated
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name '*.egg-info' -type d -prune -exec rm -rf {} +
