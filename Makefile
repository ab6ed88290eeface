# Everything lives in .venv; a target that needs it makes it, and does nothing when nothing changed.
#   make sweep MODEL=wm [PRESET= WORKLOAD= BACKENDS= DTYPE= DEVICE= SUITE=full PROCESSES=5 BUILDS=3 NOTE= RESUME=1
#                        CHECKPOINT=FILE BATCH=2 THREADS=4]
#   make export MODEL=wm BACKEND=aoti [TO=artifacts/... PRESET= WORKLOAD= DTYPE= DEVICE= CHECKPOINT= FORCE=1]
#   make table MODEL=wm | report | publish [MACHINE=NAME|ID|all]: of this machine's records, unless MACHINE says whose
#   make test | lint | selftest [QUICK=1] | history | doctor | list | gpu-evidence [DRY=1]
# A host without an NVIDIA GPU: make TORCH_INDEX=<PyTorch's CPU wheel index> avoids gigabytes of CUDA libraries.

MODEL ?= wm
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRA := $(shell nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)
INSTALLED := $(VENV)/.installed-$(EXTRA)
DEVELOPING := $(VENV)/.developing-$(EXTRA)
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt \
	$(if $(TORCH_INDEX),--extra-index-url '$(TORCH_INDEX)')
PYTEST_ARGS ?= -n auto

.PHONY: sweep export test lint selftest history report publish doctor list table gpu-evidence install clean
.DEFAULT_GOAL := sweep

sweep: $(INSTALLED)
	@$(BIN)/bakeoff sweep '$(MODEL)' \
		$(if $(PRESET),--preset '$(PRESET)') $(if $(WORKLOAD),--workload '$(WORKLOAD)') \
		$(if $(BACKENDS),--backends '$(BACKENDS)') $(if $(DTYPE),--dtype '$(DTYPE)') \
		$(if $(DEVICE),--device '$(DEVICE)') $(if $(SUITE),--suite '$(SUITE)') \
		$(if $(PROCESSES),--processes '$(PROCESSES)') $(if $(BUILDS),--builds '$(BUILDS)') \
		$(if $(CHECKPOINT),--checkpoint '$(CHECKPOINT)') $(if $(BATCH),--batch '$(BATCH)') \
		$(if $(THREADS),--threads '$(THREADS)') \
		$(if $(NOTE),--note '$(NOTE)') $(if $(RESUME),--resume)

export: $(INSTALLED)
	@$(BIN)/bakeoff export '$(MODEL)' $(if $(BACKEND),--backend '$(BACKEND)') $(if $(TO),--to '$(TO)') \
		$(if $(PRESET),--preset '$(PRESET)') $(if $(WORKLOAD),--workload '$(WORKLOAD)') \
		$(if $(DTYPE),--dtype '$(DTYPE)') $(if $(DEVICE),--device '$(DEVICE)') \
		$(if $(CHECKPOINT),--checkpoint '$(CHECKPOINT)') $(if $(FORCE),--force)

test: $(DEVELOPING)
	@$(BIN)/python -m pytest $(PYTEST_ARGS) -m 'not alone'
	@$(BIN)/python -m pytest -m alone

lint: $(DEVELOPING)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@tools/typecheck $(BIN)/python

selftest: $(INSTALLED)
	@$(BIN)/bakeoff selftest $(if $(QUICK),--quick)

gpu-evidence: $(DEVELOPING)
	@BIN=$(BIN) $(if $(DRY),DRY=1) tools/gpu-evidence

history: $(INSTALLED)
	@$(BIN)/bakeoff history
	@$(BIN)/bakeoff plots --machine all

report: $(INSTALLED)
	@$(BIN)/bakeoff report --html runs/report.html $(if $(MACHINE),--machine '$(MACHINE)')

publish: $(INSTALLED)
	@$(BIN)/bakeoff publish $(if $(MACHINE),--machine '$(MACHINE)')

doctor list: $(INSTALLED)
	@$(BIN)/bakeoff $@

table: $(INSTALLED)
	@$(BIN)/bakeoff table '$(MODEL)' $(if $(MACHINE),--machine '$(MACHINE)')

install: $(INSTALLED)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "bakeoff needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP_INSTALL) -e '.[$(EXTRA)]'
	@touch $@

$(DEVELOPING): $(INSTALLED)
	$(PIP_INSTALL) -e '.[$(EXTRA),test,lint]'
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
