# privote: everything a contributor runs. Needs Python 3.11 or later, and make.

PYTHON  ?= python3
WORKERS ?= logical

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.stamp
PIP   := -m pip install -qq --disable-pip-version-check

BENCHES := $(sort $(wildcard benchmarks/bench_*.py))
CURVES  := docs/pictures/curves.svg

.DEFAULT_GOAL := help
.PHONY: help setup demo test check pytest wheel audit faults bench paper format clean distclean
.NOTPARALLEL:

help: ## show this list
	@echo "privote: multi-winner votes under differential privacy. Targets:"
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) \
	  | while IFS='|' read -r target text; do printf '%-17s %s\n' "$$target" "$$text"; done
	@echo "Another Python: make setup PYTHON=python3.12. Fewer test workers: make test WORKERS=1."

setup: $(STAMP) ## make .venv with privote and all tools for development
	@echo "$(VENV) is ready. Try: make demo, make test"

demo: $(STAMP) ## show what privote does, start to end; writes build/demo
	@mkdir -p build
	$(BIN)/privote demo --output build/demo --force
	@echo "If this shell does not know privote: . $(BIN)/activate"

test: $(STAMP) ## all that must pass before a merge: check, tests, wheel
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory pytest
	@$(MAKE) --no-print-directory wheel

check: $(STAMP) ## lint, format, types and layers; changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports --no-logo

# One thread per worker: many workers with many threads each are slower than either. Bytecode is
# kept even where the machine says no: tests start hundreds of processes, which would each compile
# all of privote.
pytest: $(STAMP) ## the tests alone, short profile, in parallel
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "not slow" \
	  -n $(WORKERS) --maxprocesses=8 --dist=worksteal

wheel: $(STAMP) ## build the wheel and try it in new environments: without pins, and with the oldest readers of files
	@echo "Building the wheel and trying it in two new environments (about two minutes) ..."
	@rm -rf build/dist build/wheel-venv build/oldest-venv && mkdir -p build
	@$(BIN)/python -m build --wheel --outdir build/dist . >build/wheel.log 2>&1 \
	  || { cat build/wheel.log >&2; exit 1; }
	@$(BIN)/python -m venv build/wheel-venv
	@build/wheel-venv/bin/python $(PIP) build/dist/privote-*.whl
	build/wheel-venv/bin/python -I tests/wheel_smoke.py
	@$(BIN)/python tests/wheel_smoke.py bounds >build/oldest.txt
	@$(BIN)/python -m venv build/oldest-venv
	@build/oldest-venv/bin/python $(PIP) --no-compile -c build/oldest.txt "$$(ls build/dist/privote-*.whl)[files]" pillow
	build/oldest-venv/bin/python -I tests/wheel_smoke.py oldest

audit: $(STAMP) ## try to break the guarantee, full size; keeps the result
	$(call keep,benchmarks/audit_full.py)

faults: $(STAMP) ## kill runs 300 times and at every step, fill the disk, stop the database, run every attack full size; keeps the result
	$(call keep,benchmarks/faults.py)

bench: $(STAMP) ## run every benchmark, print one table of ratios; keeps the results (about 25 minutes)
	$(foreach script,$(filter-out %/bench_curves.py,$(BENCHES)),$(call keep,$(script)))
	$(call keep,benchmarks/bench_curves.py --plot $(CURVES))
	$(call keep,benchmarks/scale.py)
	$(call keep,benchmarks/comparison.py)

paper: $(STAMP) ## measure the paper's claims (PROFILE=full, DATA=DIR, AUTHORS=DIR); keeps docs/paper.md
	$(BIN)/python -m experiments.paper --profile $(or $(PROFILE),quick) $(if $(DATA),--data $(DATA)) \
	  $(if $(AUTHORS),--authors $(AUTHORS)) $(if $(filter full,$(PROFILE)),--page docs/paper.md,--results build/paper)

format: $(STAMP) ## rewrite the code in the house format
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

clean: ## remove what was built and cached; leaves .venv
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf .coverage htmlcov
	find src tests examples benchmarks experiments -name __pycache__ -type d -prune \
	  -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## remove .venv too
	rm -rf $(VENV)

# The stamp is written last. Without it the environment was never finished: begin again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "privote needs Python 3.11 or later, but '$(PYTHON)' is" \
	    "$$($(PYTHON) -c 'import platform; print(platform.python_version())' 2>/dev/null \
	      || echo 'not there or does not run')." \
	    "Name another one: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Setting up $(VENV) with pinned packages (usually two to three minutes) ..."
	@test -e $@ || $(PYTHON) -m venv --clear $(VENV) || { \
	  echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu: apt install python3-venv" >&2; \
	  exit 1; }
	@$(BIN)/python $(PIP) -c constraints.txt -e ".[dev]"
	@touch $@

# Run a script and keep what it prints, with the command, the date and the machine. A run
# that fails leaves the last kept result as it was. (The empty line ends the recipe line.)
name = $(basename $(notdir $(firstword $(1))))
define keep
@mkdir -p build/results benchmarks/results
@echo "$(BIN)/python $(1)"
@{ echo "command: $(BIN)/python $(1)"; \
   echo "date:    $$(date -u '+%Y-%m-%d %H:%M UTC')"; \
   $(BIN)/python -c "import os, platform as p; print('machine: %d cores, %s, Python %s' \
     % (os.cpu_count(), p.machine(), p.python_version()))"; \
   echo; } > build/results/$(call name,$(1)).txt
@$(BIN)/python $(1) >> build/results/$(call name,$(1)).txt
@mv build/results/$(call name,$(1)).txt benchmarks/results/
@cat benchmarks/results/$(call name,$(1)).txt

endef
