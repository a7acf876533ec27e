# Two commands do everything on a machine with Python 3.11 to 3.13: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT := build/demo
SITE := build/site-tools
# What the site shows pictures of, and which.
PICTURES := dynamic_mnist matrix_em_smallnorb sparse_mnist probabilistic_mnist attention_mnist
DIGITS := $(wildcard capszoo/data/samples/digits/[0-7]_a.png)
TOYS := $(wildcard capszoo/data/samples/toys/*.png)
# What the demo page runs, and what runs it.
DEMO := docs/demo/built
LITERT := build/litertjs

# Commands start many processes, and each would compile whatever it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test lint lock wheels release tables docs notebooks clean

run: $(VENV)/ready
	$(BIN)/capszoo list
	$(BIN)/capszoo predict capszoo/data/samples/digits/*.png --model dynamic_mnist --out $(OUT)/predictions.png
	rm -rf $(OUT)/models
	$(BIN)/capszoo export dynamic_mnist --out $(OUT)/models

test: $(VENV)/ready lint
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Everything is pinned in requirements.txt, with hashes; the project itself is installed from this folder. uv, itself one
# of the pins, installs the others in a quarter of pip's time.
$(VENV)/ready: requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	sed -n '/^uv==/,/[^\\]$$/p' requirements.txt > $(VENV)/uv.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/uv.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	touch $@

# Pins anew what pyproject.toml asks for, with the hashes of the files that pip may install.
lock: $(VENV)/ready
	$(BIN)/uv pip compile pyproject.toml --extra dev --upgrade --generate-hashes --no-annotate --no-header --quiet -o requirements.txt

# The package with its small presets, and the large weights.
wheels: $(VENV)/ready
	$(BIN)/python -m hatchling build -t wheel -d $(CURDIR)/dist
	cd weights && ../$(BIN)/python -m hatchling build -t wheel -d $(CURDIR)/dist

# What is published, in dist/: the bundles of all presets with weights, whose checksums go into the cards, and then the
# wheels, with those cards; every file in SHA256SUMS. Some of them only: make release PRESETS="vae_mnist".
release: $(VENV)/ready
	rm -rf dist
	$(BIN)/python -m capszoo.exporting.release dist/models $(PRESETS)
	$(MAKE) wheels
	cd dist && find . -type f ! -name SHA256SUMS | LC_ALL=C sort | xargs -d '\n' sha256sum > SHA256SUMS

# The tables of README.md and of the site, from the cards and the networks.
tables: $(VENV)/ready
	$(BIN)/python docs/tables.py

# The site, in build/site; with warnings as errors.
docs: $(SITE)/ready tables $(PICTURES:%=docs/pictures/%/index.html) $(DEMO)/litert/core.js
	$(SITE)/bin/mkdocs build --quiet --strict

# The notebooks of colab/, executed: this project's libraries behind the tools that execute them, in the processes of an
# export too, which look at no PYTHONPATH.
notebooks: $(SITE)/ready $(VENV)/ready
	printf '%s\n' "$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')" "$(CURDIR)" \
	  > "$$($(SITE)/bin/python -c 'import site; print(site.getsitepackages()[0])')/capszoo.pth"
	TF_CPP_MIN_LOG_LEVEL=3 $(SITE)/bin/python colab/execute.py $(NOTEBOOKS)

# What builds the site is no part of what runs the project.
$(SITE)/ready: docs/requirements.txt
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

docs/pictures/%/index.html: $(VENV)/ready
	$(BIN)/capszoo visualize $(if $(findstring norb,$*),$(TOYS),$(DIGITS)) --model $* --out $(@D)

# The demos: a folder for each network, and LiteRT for the browser.
$(DEMO)/digits/demo.json: $(VENV)/ready capszoo/exporting/demo.py capszoo/weights/dynamic_mnist/card.json
	$(BIN)/python -m capszoo.exporting.demo dynamic_mnist $(@D) capszoo/data/samples/digits/*.png

$(DEMO)/toys/demo.json: $(VENV)/ready capszoo/exporting/demo.py capszoo/weights/matrix_em_smallnorb/card.json
	$(BIN)/python -m capszoo.exporting.demo matrix_em_smallnorb $(@D) $(TOYS)

$(DEMO)/litert/core.js: $(DEMO)/digits/demo.json $(DEMO)/toys/demo.json docs/demo/package-lock.json
	mkdir -p $(LITERT) $(@D)
	cp docs/demo/package.json docs/demo/package-lock.json $(LITERT)
	cd $(LITERT) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	cp $(LITERT)/node_modules/@litertjs/core/wasm/litert_wasm_compat_internal.* LICENSE $(@D)
	cp $(LITERT)/node_modules/@litertjs/wasm-utils/dist/index.js $(@D)/wasm-utils.js
	cp $(LITERT)/node_modules/@litertjs/core/dist/index.js $@

clean:
	rm -rf $(VENV) build dist docs/pictures $(DEMO)
