# smelt: `make` prints what there is.
PYTHON3 ?= python3
VENV    ?= .venv
PY      := $(VENV)/bin/python
STAMP   := $(VENV)/.smelt-setup
FULL    := $(VENV)/.smelt-full
KERNELS := $(VENV)/.smelt-kernels
TESTS   ?= tests
ARGS    ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-full check format docs docs-check bench stress conformance conformance-torch conformance-eager zoo real gpu-check clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(KERNELS) ## make .venv with everything needed here

# torch comes first and by itself, so that the resolver keeps the build that the installation's own index prefers.
$(STAMP): requirements-dev.txt pyproject.toml
	$(PYTHON3) -m venv $(VENV)
	$(PY) -m pip install --quiet torch==2.13.0
	$(PY) -m pip install --quiet -r requirements-dev.txt
	$(PY) -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(PY) -m compileall -q src # as an installed package is: each start of a process is 0.45 s of CPU shorter
	@touch $@

# Kernels that no model changes come compiled with the installation. Without a compiler there are none.
$(KERNELS): $(STAMP) $(wildcard src/smelt/codegen/c/include/smelt/*/*.h)
	-$(PY) -m smelt cache warm --installed
	@touch $@

# Ray, Sentence Transformers, onnxruntime-genai: programs that the long suites run smelt in.
$(FULL): $(STAMP) requirements-full.txt
	$(PY) -m pip install --quiet -r requirements-full.txt
	@touch $@

demo: $(KERNELS) ## compile a model and time it against stock ONNX Runtime
	$(PY) -m smelt.bench.demo $(ARGS)

test: $(KERNELS) ## fast tests
	$(PY) -m pytest -q -n 2 $(ARGS) $(TESTS)

test-full: $(KERNELS) $(FULL) ## all tests: long ones, other ONNX Runtime releases, other compilers and CPUs
	$(PY) -m pytest -q -n 2 -m "full or not full" --timeout 1500 $(ARGS) $(TESTS)

check: $(STAMP) docs-check ## lint, format, types, layers, words, sizes, links and commands of the docs
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright --pythonpath $(PY)
	$(VENV)/bin/lint-imports
	$(PY) tools/check_words.py
	$(PY) tools/check_sizes.py

format: $(STAMP) ## rewrite the sources in the project's format
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

# The site's own tools live beside the environment, which they see: reference pages are made from the code.
$(VENV)-docs/.made: $(STAMP) docs/site/requirements.txt
	$(PYTHON3) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet -r docs/site/requirements.txt
	$(PY) -c "import sysconfig; print(sysconfig.get_path('purelib'))" > \
	  $$($(VENV)-docs/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/smelt.pth
	@touch $@

docs-check: $(STAMP) ## every link of the docs leads somewhere, every command parses
	$(PY) tools/check_docs.py

docs: $(VENV)-docs/.made ## build the documentation site, strictly, into build/site
	$(VENV)-docs/bin/python -m mkdocs build --strict --clean $(ARGS)

bench: $(KERNELS) ## time models and micro-benchmarks against everything else installed
	$(PY) -m smelt.bench $(ARGS)

stress: $(KERNELS) ## odd sizes, NaN and infinities, eight callers, other numbers of threads, on every model of the zoo
	$(PY) -m pytest -q -n 2 -m "full or not full" --timeout 1500 $(ARGS) tests/stress

conformance: $(KERNELS) ## run the ONNX node suite through smelt
	$(PY) -W ignore tests/conformance/run.py $(ARGS)

conformance-torch: $(KERNELS) ## run PyTorch's operator database through smelt
	$(PY) -W ignore tests/conformance_torch/opinfo_run.py $(ARGS)

conformance-eager: $(KERNELS) ## run PyTorch's operator database on the device `ort` against the CPU
	$(PY) -W ignore tests/conformance_eager/eager_run.py $(ARGS)

zoo: $(KERNELS) ## architectures of transformers, tiny, through torch.compile and smelt.export
	$(PY) -W ignore tests/zoo/zoo_run.py $(ARGS)

real: $(KERNELS) ## pretrained models from wheels and architectures of timm: right, compile time, speed
	$(PY) -W ignore -m smelt.bench.real $(ARGS)

gpu-check: $(KERNELS) ## on a machine with a GPU: numerics, sanitizer, speed; writes build/gpu-check.txt
	$(PY) -W ignore tools/gpu_check.py $(ARGS)

clean: ## remove what was built, but not .venv
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
