# The one list of commands, for people and for CI. `make help` prints it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
QUESTION ?= What is the capital of France?

NATIVE_SOURCES := $(shell find native -type f) meson.build
NATIVE_CODE := $(shell find native -name '*.h' -o -name '*.cc')
SOURCES := $(shell find src -name '*.py' -o -name '*.html' -o -name py.typed) $(NATIVE_SOURCES) pyproject.toml

.DEFAULT_GOAL := help
.PHONY: help run chat test test-slow test-all lint format bench clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	@$(PIP) install -q --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.build-tools: $(VENV)/.created pyproject.toml
	@echo "Fetching the tools that build EMEL, a clang among them (100 MB)"
	@$(PIP) install -q 'meson-python>=0.17,<1' 'meson>=1.4,<2' 'ninja>=1.11' 'ziglang>=0.15,<0.18'
	@touch $@

# The package as users get it, built in build/ so that a second time only rebuilds what changed.
$(VENV)/.installed: $(VENV)/.build-tools $(SOURCES)
	@echo "Building EMEL: two minutes of a processor's time, once. Afterwards: . $(BIN)/activate"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) install -q --no-build-isolation -C build-dir=build .
	@touch $@

$(VENV)/.test-tools: $(VENV)/.created pyproject.toml
	$(PIP) install -q --group test --group lint
	@touch $@

run: $(VENV)/.installed  ## set everything up, fetch the default model once, answer a question
	@$(BIN)/emel run -p "$(QUESTION)" --temp 0

chat: $(VENV)/.installed  ## talk to the default model
	@$(BIN)/emel chat

test: $(VENV)/.installed $(VENV)/.test-tools  ## set up what the tests need and run them, but for the slow ones
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow'

test-slow: $(VENV)/.installed $(VENV)/.test-tools  ## the others: recorded answers, AArch64, sanitizers, browser, load
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

test-all: test test-slow  ## every test once

# Of an installation lint needs the dependencies, not the newest build: before a commit it should be quick.
DEPENDENCIES := $(if $(shell find $(VENV)/.installed -newer pyproject.toml 2>/dev/null),,$(VENV)/.installed)

lint: $(DEPENDENCIES) $(VENV)/.test-tools  ## style, types, layers, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(NATIVE_CODE)
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports
	$(BIN)/codespell

format: $(VENV)/.test-tools  ## rewrite the sources in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(NATIVE_CODE)

bench: $(VENV)/.installed  ## speed of this machine and of generation on it
	$(BIN)/emel bench roofline
	$(BIN)/emel bench generation

clean:  ## remove everything built (not the fetched models)
	rm -rf $(VENV) build
