# Two commands on a fresh machine: `make demo` trains on real digits, `make test` checks everything that needs no GPU.
PYTHON ?= python3
# how many processes share the tests, file by file; WORKERS=0: this one alone, as --pdb needs it
WORKERS ?= 2
# what runs the tests; .ci/run gives one that runs what failed once more
PYTEST ?= -m pytest
VENV := .venv
TESTVENV := .venv-test

# NumPy as new as there is, without Triton, whose interpreter lags behind; the newest NumPy wants a newer Python than the oldest we take
NEWESTVENV := .venv-newest
NEWEST_PYTHON ?= $(shell for p in python3.13 $(HOME)/.pyenv/versions/3.13*/bin/python python3.12 \
	$(HOME)/.pyenv/versions/3.12*/bin/python $(PYTHON); do "$$p" -c "" 2>/dev/null && echo "$$p" && break; done)

.PHONY: demo test newest newest-gpu nightly docs lint clean

demo: $(VENV)/done
	$(VENV)/bin/python -m tritium train

test: $(TESTVENV)/done lint newest
	TRITIUM_GPU=interpret $(TESTVENV)/bin/python $(PYTEST) -n $(WORKERS) --dist loadfile

# the part that needs no interpreter, computed by NumPy alone, as where there is no C compiler
newest: $(NEWESTVENV)/done
	TRITIUM_GPU=off TRITIUM_CPU_CODE=numpy $(NEWESTVENV)/bin/python $(PYTEST) -q -n $(WORKERS) --dist loadfile -k "not gpu and not interpret" \
		--ignore tests/kernels/ops/tensor/test_elementwise.py --ignore tests/kernels/gpu --ignore tests/kernels/configs \
		tests/kernels tests/ndarray/interop/test_numpy_protocol.py tests/ndarray/core/test_tiny_arrays.py tests/ndarray/core/test_arithmetic.py \
		tests/test_every_operator.py tests/test_out_by_name.py tests/test_tested_versions.py

# Triton and PyTorch as new as there are; the end of the nightly run. The bounds of machine code are those of the tests' own Triton
newest-gpu: $(NEWESTVENV)-gpu/done
	TRITIUM_GPU=interpret $(NEWESTVENV)-gpu/bin/python $(PYTEST) -q -n $(WORKERS) --dist loadfile tests/kernels/gpu tests/engine/gpu \
		tests/ndarray/test_gpu_order.py tests/test_torch_computes_nothing.py

# the long tests, then the others once more with examples that nobody has seen yet
nightly: $(TESTVENV)/done
	TRITIUM_GPU=interpret $(TESTVENV)/bin/python -m pytest -m nightly -n $(WORKERS) tests/kvstore/test_simulation.py
	TRITIUM_GPU=interpret $(TESTVENV)/bin/python -m pytest -m nightly --hypothesis-profile=anew --ignore tests/kvstore/test_simulation.py
	TRITIUM_GPU=interpret $(TESTVENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile --hypothesis-profile=anew
	$(MAKE) newest-gpu

# the site, in docs/_build/html
docs: $(TESTVENV)/done
	$(TESTVENV)/bin/python -m sphinx -E -W --keep-going -b html docs docs/_build/html

lint: $(TESTVENV)/done
	$(TESTVENV)/bin/ruff check .
	$(TESTVENV)/bin/lint-imports
	$(TESTVENV)/bin/pyright --pythonpath $(TESTVENV)/bin/python

# --no-compile: Python compiles the modules that are imported when they are, a small part of them. Python's own pip installs, if it
# has one that can: to put another one into the environment takes as long as all the rest
$(VENV)/done: pyproject.toml
	$(PYTHON) -m venv --without-pip $(VENV)
	$(PYTHON) -m pip --python $(VENV)/bin/python install -q --no-compile -e . || \
		{ $(PYTHON) -m venv $(VENV) && $(VENV)/bin/python -m pip install -q --no-compile -e .; }
	touch $@

$(TESTVENV)/done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(TESTVENV)
	$(TESTVENV)/bin/python -m pip install -q -c constraints.txt -e ".[test]"
	touch $@

$(NEWESTVENV)-gpu/done: pyproject.toml
	$(NEWEST_PYTHON) -m venv $(NEWESTVENV)-gpu
	$(NEWESTVENV)-gpu/bin/python -m pip install -q --upgrade torch triton "numpy<2.4" -e . pytest pytest-timeout pytest-xdist hypothesis
	touch $@

$(NEWESTVENV)/done: pyproject.toml
	$(NEWEST_PYTHON) -m venv $(NEWESTVENV)
	$(NEWESTVENV)/bin/python -m pip install -q --upgrade numpy -e . pytest pytest-timeout pytest-xdist hypothesis
	touch $@

clean:
	rm -rf $(VENV) $(TESTVENV) $(NEWESTVENV) $(NEWESTVENV)-gpu *.egg-info
