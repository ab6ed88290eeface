# Everything lives in .venv; a target that needs it makes it, and does nothing when
# nothing changed. In brackets: what may be added.
#
# Measure:
#   make sweep MODEL=wm [TIME_LIMIT=3m SUITE=quick|full BATCH=1,2,4,8 RESUME=1
#        PRESET= WORKLOAD= BACKENDS= DTYPE= DEVICE= THREADS=4 PROCESSES=5
#        OBJECTIVE='throughput,p99<=33ms,memory<=8GiB' SIZES='x.0=1,4,8' NOTE=
#        CHECKPOINT=FILE ROW_TIMEOUT=3600 MONITOR=1]: every variant of a component
#   make pipeline [MODEL='owl:200m[steps=10]' MIX='best wm=inductor/bf16' UNITS=20
#        MINUTES= DEVICE= THREADS= ROW_TIMEOUT= NOTE= RESUME=1 MONITOR=1]: whole
#        frames, with one variant for each component
#   make profile [MODEL=matrix|owl|wm:200m.step MIX='eager best' LEVEL=3 UNITS=20
#        TRACED=5 TRACE=FOLDER MEMORY=1 COMPILER=1 DEVICE= THREADS= NOTE= RESUME=1
#        MONITOR=1]: where the time goes, and what could be gained
# Look:
#   make table MODEL=wm | report [MACHINE=NAME|ID|all] | list | doctor
# Ship:
#   make export MODEL=wm|wm:1b.step BACKEND=aoti [TO=FOLDER DTYPE= DEVICE=
#        CHECKPOINT= FORCE=1]
#   make publish [MACHINE=NAME|ID|all]
# Maintain:
#   make test | lint | faults [ONLY='worker record'] | selftest [QUICK=1] | history
#   make gpu-evidence [FAST=1 BUDGET=540 TO=FOLDER DRY=1 STEPS='smoke-*,torch-*' RETRY=1]
#   make install [TENSORRT=1 CONSTRAINTS=constraints-torch-2.11.txt] | clean
#
# A host without an NVIDIA GPU: make TORCH_INDEX=<PyTorch's CPU wheel index> avoids
# gigabytes of CUDA libraries. A host with one gets TensorRT too, and first reads
# which compilers it lacks. Where its libraries cannot be had, everything else works,
# and TENSORRT=1 tries again.

# One word of a command line, and an option with its value where that is not empty; values may hold apostrophes.
quoted = '$(subst ','\'',$(1))'
option = $(if $(2),$(1) $(call quoted,$(2)))
former = $(if $(filter command%,$(origin $(1))),$(error $(1)= is now $(2)))
$(call former,DEADLINE,ROW_TIMEOUT=)
$(call former,OPTIONS,MODEL='owl[steps=10]')
# A pipeline of its own default: a component's name is none.
PIPELINE := $(or $(MODEL),owl)
MODEL ?= wm
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What shows an NVIDIA GPU: its device node or the driver's library, which a container has without nvidia-smi, else that
# program. SYSTEM is the root folder of the host; tests give another one.
SYSTEM :=
LIBRARIES := $(addprefix $(SYSTEM)/,usr/lib/x86_64-linux-gnu usr/lib/aarch64-linux-gnu usr/lib64 usr/lib usr/lib/wsl/lib \
	usr/local/nvidia/lib64) $(subst :, ,$(LD_LIBRARY_PATH))
GPU := $(firstword $(wildcard $(SYSTEM)/dev/nvidia[0-9]* $(addsuffix /libcuda.so.1,$(LIBRARIES))))
GPU := $(or $(GPU),$(shell nvidia-smi -L >/dev/null 2>&1 && echo nvidia-smi))
EXTRA := $(if $(GPU),gpu,cpu)
NO_GPU := no /dev/nvidia0, no libcuda.so.1, and nvidia-smi -L shows none
# The set of constraints that this .venv was installed with stays in use until another one is named.
CONSTRAINTS := $(or $(CONSTRAINTS),$(shell cat $(VENV)/.constraints 2>/dev/null),constraints.txt)
SET := $(patsubst constraints%.txt,%,$(notdir $(CONSTRAINTS)))
INSTALLED := $(VENV)/.installed-$(EXTRA)$(SET)
DEVELOPING := $(VENV)/.developing-$(EXTRA)$(SET)
# Holds `installed`, or why TensorRT is not.
TENSORRT_TRIED := $(VENV)/.tensorrt$(SET)
$(if $(filter-out 1,$(TENSORRT)),$(error TENSORRT=$(TENSORRT): give 1, or leave it out))
ifeq ($(EXTRA),gpu)
READY := $(INSTALLED) $(TENSORRT_TRIED)
else
READY := $(INSTALLED)
$(if $(TENSORRT),$(error TENSORRT=1 needs an NVIDIA GPU and found $(NO_GPU); check the driver))
endif
# A .venv that was made for the other extra loses what pip would take for installed: torch's CPU build, and the one of
# onnxruntime and onnxruntime-gpu (they share a folder) that does not belong here.
REPLACED := $(if $(filter gpu,$(EXTRA)),$(if $(wildcard $(VENV)/.installed-cpu*),torch onnxruntime),\
	$(if $(wildcard $(VENV)/.installed-gpu*),onnxruntime-gpu))
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c $(CONSTRAINTS) \
	$(call option,--extra-index-url,$(TORCH_INDEX))
PYTEST_ARGS ?= -n auto

.PHONY: help sweep pipeline profile export test lint selftest faults history report publish doctor list table gpu-evidence install clean
.DEFAULT_GOAL := help

# What stands above.
help:
	@sed -n '/^$$/q; s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

sweep: $(READY)
	@$(BIN)/bakeoff sweep $(call quoted,$(MODEL)) \
		$(call option,--preset,$(PRESET)) $(call option,--workload,$(WORKLOAD)) \
		$(call option,--backends,$(BACKENDS)) $(call option,--dtype,$(DTYPE)) \
		$(call option,--device,$(DEVICE)) $(call option,--suite,$(SUITE)) \
		$(call option,--processes,$(PROCESSES)) \
		$(call option,--checkpoint,$(CHECKPOINT)) $(call option,--batch,$(BATCH)) \
		$(call option,--threads,$(THREADS)) $(call option,--row-timeout,$(ROW_TIMEOUT)) \
		$(call option,--objective,$(OBJECTIVE)) $(call option,--sizes,$(SIZES)) \
		$(call option,--time-limit,$(TIME_LIMIT)) $(call option,--note,$(NOTE)) \
		$(call former,BUDGET,TIME_LIMIT=) $(call former,BUILDS,a sweep after bakeoff doctor --cache clear) \
		$(if $(RESUME),--resume) $(if $(MONITOR),--monitor)

pipeline: $(READY)
	@$(BIN)/bakeoff pipeline $(call quoted,$(PIPELINE)) \
		$(foreach each,$(MIX),--mix $(call quoted,$(each))) $(call option,--units,$(UNITS)) \
		$(call option,--minutes,$(MINUTES)) $(call option,--device,$(DEVICE)) \
		$(call former,PRESET,MODEL=owl:PRESET) \
		$(call option,--threads,$(THREADS)) $(call option,--row-timeout,$(ROW_TIMEOUT)) \
		$(call option,--note,$(NOTE)) $(if $(RESUME),--resume) $(if $(MONITOR),--monitor)

profile: $(READY)
	@$(BIN)/bakeoff profile $(call quoted,$(PIPELINE)) \
		$(call option,--level,$(LEVEL)) $(call option,--units,$(UNITS)) $(call option,--traced,$(TRACED)) \
		$(foreach each,$(MIX),--mix $(call quoted,$(each))) $(call option,--trace,$(TRACE)) \
		$(call former,PRESET,MODEL=owl:PRESET) \
		$(if $(MEMORY),--memory) $(if $(COMPILER),--compiler) $(call option,--device,$(DEVICE)) \
		$(call option,--threads,$(THREADS)) $(call option,--note,$(NOTE)) $(if $(RESUME),--resume) \
		$(if $(MONITOR),--monitor)

export: $(READY)
	@$(BIN)/bakeoff export $(call quoted,$(MODEL)) $(call option,--backend,$(BACKEND)) $(call option,--to,$(TO)) \
		$(call former,PRESET,MODEL=wm:PRESET.WORKLOAD) $(call former,WORKLOAD,MODEL=wm:PRESET.WORKLOAD) \
		$(call option,--dtype,$(DTYPE)) $(call option,--device,$(DEVICE)) \
		$(call option,--checkpoint,$(CHECKPOINT)) $(if $(FORCE),--force)

test: $(READY) $(DEVELOPING)
	@$(BIN)/python -m pytest $(PYTEST_ARGS) -m 'not alone'
	@$(BIN)/python -m pytest -m alone $$(grep -rl --include='test_*.py' 'mark\.alone' tests)

lint: $(DEVELOPING)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@tools/typecheck $(BIN)/python

selftest: $(READY)
	@cd tests/support && $(abspath $(BIN))/bakeoff selftest $(if $(QUICK),,selftest_backends.expected:MORE)

faults: $(DEVELOPING)
	@$(BIN)/python tests/trials/faults.py $(if $(ONLY),--only $(ONLY))

gpu-evidence: $(READY) $(if $(FAST),,$(DEVELOPING))
	@BIN=$(BIN) tools/gpu-evidence $(if $(FAST),--fast) $(if $(DRY),--dry-run) $(call option,--only,$(STEPS)) \
		$(call option,--budget,$(BUDGET)) $(call option,--to,$(TO)) $(if $(RETRY),--retry)

history: $(READY)
	@$(BIN)/bakeoff history

report: $(READY)
	@$(BIN)/bakeoff report --html runs/report.html $(call option,--machine,$(MACHINE))

publish: $(READY)
	@$(BIN)/bakeoff publish $(call option,--machine,$(MACHINE))

doctor list: $(READY)
	@$(BIN)/bakeoff $@

table: $(READY)
	@$(BIN)/bakeoff table $(call quoted,$(MODEL)) $(call option,--machine,$(MACHINE))

install: $(READY)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "bakeoff needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# The stamps of another extra or another set of constraints go, because this replaces what they stand for.
$(INSTALLED): pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	@echo $(if $(GPU),'Installing for an NVIDIA GPU (found $(GPU)): about 5 GB.','Installing for the CPU: $(NO_GPU).')
	$(if $(GPU),@$(BIN)/python tools/missing-compilers)
	$(if $(strip $(REPLACED)),$(BIN)/python -m pip uninstall --yes $(strip $(REPLACED)))
	@rm -f $(VENV)/.installed-* $(VENV)/.developing-* $(VENV)/.tensorrt*
	$(PIP_INSTALL) -e '.[$(EXTRA)]'
	@echo $(call quoted,$(CONSTRAINTS)) > $(VENV)/.constraints
	@touch $@

$(TENSORRT_TRIED): $(INSTALLED)
	$(BIN)/python tools/install-tensorrt $(if $(TENSORRT),--required) $@ $(PIP_INSTALL) -e '.[gpu,tensorrt,modelopt]'

ifneq ($(TENSORRT),)
ifneq ($(shell cat $(TENSORRT_TRIED) 2>/dev/null),installed)
.PHONY: $(TENSORRT_TRIED)
endif
endif

$(DEVELOPING): $(INSTALLED)
	$(PIP_INSTALL) -e '.[$(EXTRA),ray,mlflow,test,lint]'
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
