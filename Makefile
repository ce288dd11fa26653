# Two commands on a fresh machine: `make demo` trains on real digits, `make test` checks everything that needs no GPU.
PYTHON ?= python3
# how many processes share the tests, file by file; WORKERS=0: this one alone, as --pdb needs it
WORKERS ?= 2
# what runs the tests; .ci/run gives one that runs what failed once more
PYTEST ?= -m pytest
VENV := .venv
TESTVENV := .venv-test

.PHONY: demo test nightly lint clean

demo: $(VENV)/done
	$(VENV)/bin/python -m tritium train

test: $(TESTVENV)/done lint
	TRITIUM_GPU=interpret $(TESTVENV)/bin/python $(PYTEST) -n $(WORKERS) --dist loadfile

# the long tests, then the others once more with examples that nobody has seen yet
nightly: $(TESTVENV)/done
	TRITIUM_GPU=interpret $(TESTVENV)/bin/python -m pytest -m nightly --hypothesis-profile=anew
	TRITIUM_GPU=interpret $(TESTVENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile --hypothesis-profile=anew

lint: $(TESTVENV)/done
	$(TESTVENV)/bin/ruff check .
	$(TESTVENV)/bin/lint-imports
	$(TESTVENV)/bin/pyright --pythonpath $(TESTVENV)/bin/python

$(VENV)/done: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install -q -e .
	touch $@

$(TESTVENV)/done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(TESTVENV)
	$(TESTVENV)/bin/python -m pip install -q -c constraints.txt -e ".[test]"
	touch $@

clean:
	rm -rf $(VENV) $(TESTVENV) build *.egg-info
