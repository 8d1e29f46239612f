# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PINS   ?= constraints.txt

.PHONY: install demo test lint types tests torchvision lowest bench docs readme-table clean

install: $(STAMP)

# torch first and pinned: whatever depends on it then finds it there and pulls no other build.
$(STAMP): pyproject.toml setup.py $(PINS) $(wildcard src/orthosparse/*.hpp src/orthosparse/*/kernel.cpp src/orthosparse/*/kernel/*.hpp)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c $(PINS) torch
	$(BIN)/pip install -q -c $(PINS) -e '.[dev]'
	touch $(STAMP)

demo: install
	$(BIN)/orthosparse demo

# mypy and the second run of tests have one process each: side by side, before the tests that take two.
test: lint
	$(MAKE) --jobs=2 types torchvision
	$(MAKE) tests

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

tests: install
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

# Once more what needs timm or torchvision: by itself it is skipped where their builds do not fit torch's.
torchvision: install
	$(BIN)/python -m pytest -q -m torchvision --declare-torchvision $$(grep -rl --include='*.py' mark.torchvision tests)

# The same tests with the oldest packages that pyproject.toml allows.
lowest:
	$(MAKE) tests torchvision VENV=.venv-lowest PINS=.make.lowest

.make.lowest: pyproject.toml
	grep -o '"[a-z][a-z0-9-]*>=[0-9.]*' $< | sed 's/"//; s/>=/==/' | sort -u > $@

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: install
	$(BIN)/orthosparse bench sampler

# The README's table, its pictures and the answers to the paper's claims, from the committed rows and the paper's numbers.
readme-table: install
	$(BIN)/python -m orthosparse.lab.paper.frontpage . $(wildcard results/*.jsonl)

clean:
	rm -rf $(VENV) .venv-lowest .make.lowest build dist site src/*.egg-info
