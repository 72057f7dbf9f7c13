# Everything a user or a developer runs. Steps that are done are not done again; what is installed
# for Python stays in .venv, what is built in build/.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
# Debian's cmake first: it is the one that the presets are tried with.
CMAKE := $(firstword $(wildcard /usr/bin/cmake) cmake)
VENV := .venv/bin

APT_BUILD := ccache cmake g++ libasio-dev libbenchmark-dev libbox2d-dev libfmt-dev libgtest-dev \
	liblz4-dev libnghttp2-dev libprotobuf-dev libprotozero-dev libsnappy-dev libssl-dev libzstd-dev \
	ninja-build protobuf-compiler python3-dev python3-venv zlib1g-dev
APT_TEST := clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev spin
APT_REVERB := nginx-light
APT_ARM64 := g++-aarch64-linux-gnu qemu-user
APT_UCX := libucx-dev

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | \
	  awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

.PHONY: deps deps-build
deps: ## Print the apt line for what is missing to build and test, and run it
	@tools/apt_install $(APT_BUILD) $(APT_TEST)
deps-build:
	@tools/apt_install $(APT_BUILD)

.venv/made: | deps-build
	@echo "Python: making .venv"
	@$(PYTHON) -m venv .venv
	@touch $@
.venv/with-%: .venv/made pyproject.toml tools/requirements.py
	@echo "Python: installing into .venv: $(subst -, ,$*)"
	@$(VENV)/python tools/requirements.py $(subst -, ,$*) > .venv/requirements-$*.txt
	@$(VENV)/python -m pip install -q --progress-bar off -r .venv/requirements-$*.txt
	@$(VENV)/python tools/link_checkout.py
	@touch $@

build/release/build.ninja: CMakePresets.json | .venv/with-demo
	@$(CMAKE) --preset release

.PHONY: build
build: deps-build build/release/build.ninja ## Build the library and the Python extension
	@$(CMAKE) --build --preset release --target _reverie

.PHONY: symbols
symbols: deps-build build/release/build.ninja ## The same extension with symbols and frame pointers, in build/symbols/python
	@mkdir -p build/symbols/python/reverie
	@find $(CURDIR)/python/reverie -mindepth 1 -maxdepth 1 ! -name '*.so' ! -name __pycache__ \
	  -exec ln -sfn -t build/symbols/python/reverie {} +
	@$(CMAKE) --preset symbols
	@$(CMAKE) --build --preset symbols
	@echo "Run with it: PYTHONPATH=build/symbols/python $(VENV)/python PROGRAM"

.PHONY: run
run: build ## Install what is missing, build, and run the demonstration (reverie demo)
	@$(VENV)/reverie demo

.PHONY: test
test: ## The same, then every test that fits in minutes; one summary at the end
	@tools/apt_install $(APT_BUILD) $(APT_TEST)
	@$(MAKE) --no-print-directory .venv/with-demo-test-dev
	@PATH="$(CURDIR)/$(VENV):$$PATH" CMAKE=$(CMAKE) $(VENV)/python tools/test.py release

.PHONY: test-full
test-full: ## Full counts, all sanitizers, clang-tidy, longer fuzzing, rooms on arm64, peers over UCX
	@tools/apt_install $(APT_BUILD) $(APT_TEST) $(APT_ARM64) $(APT_UCX)
	@$(MAKE) --no-print-directory .venv/with-wheel
	@$(MAKE) --no-print-directory .venv/with-demo-test-dev
	@PATH="$(CURDIR)/$(VENV):$$PATH" CMAKE=$(CMAKE) $(VENV)/python tools/test.py --full \
	  release benchmarks asan asan-python tsan fuzz tidy arm64 ucx

.PHONY: soak
soak: build ## An hour of kills, freezes and slow readers on a server with clients beside it
	@$(VENV)/python tests/attacks/soak.py --minutes 60

.venv-reverb/made: tests/reverb/requirements.txt tests/reverb/requirements-programs.txt
	@echo "Python: making .venv-reverb, with dm-reverb and TensorFlow"
	@$(PYTHON) -m venv .venv-reverb
	@.venv-reverb/bin/python -m pip install -q --progress-bar off -r $<
	@.venv-reverb/bin/python -m pip install -q --progress-bar off --no-deps \
	  -r tests/reverb/requirements-programs.txt
	@for major in 3 4 5 6 7; do \
	  .venv-reverb/bin/python -m pip install -q --progress-bar off --no-deps --upgrade \
	    --target .venv-reverb/protobuf-$$major "protobuf==$$major.*" || exit 1; done
	@touch $@

.PHONY: test-reverb
test-reverb: build .venv-reverb/made ## dm-reverb's clients on our server, and ours on dm-reverb's
	@tools/apt_install $(APT_REVERB)
	@.venv-reverb/bin/python -m pytest -q -c tests/reverb/pytest.ini \
	  --rootdir . tests/reverb tests/reverb_api

.PHONY: bench
bench: build ## Build and run the C++ benchmarks
	@$(CMAKE) --build --preset release --target benchmarks
	@for program in build/release/benchmarks/*_bench; do \
	  echo "== $${program##*/}"; "$$program" --benchmark_repetitions=5 \
	    --benchmark_report_aggregates_only=true || exit 1; done

.PHONY: figures
# PEERS=python: an interpreter with tianshou, ray[rllib], cpprb, flashbax, for figure 8. dm-reverb is
# measured beside where .venv-reverb has it: make .venv-reverb/made.
figures: build ## Draw the papers' figures of this machine into build/figures
	@$(CMAKE) --build --preset release --target paper_bench replay_threads_bench forest_bench
	@$(VENV)/python benchmarks/figures/paper.py $(if $(PEERS),--peers $(PEERS))
	@$(VENV)/python benchmarks/figures/forest.py --out build/figures
	@$(VENV)/python benchmarks/figures/reverb_paper.py \
	  $(if $(wildcard .venv-reverb/made),--reverb .venv-reverb/bin/python)

.PHONY: wheel
# PYTHONS="3.11 3.12": for these alone; every CPython on the PATH and in pyenv without.
wheel: deps-build .venv/with-demo-wheel ## Build dist/*.tar.gz and dist/*.whl, and try each wheel in bare environments
	@$(VENV)/python tools/wheel.py $(if $(PYTHONS),--python $(PYTHONS),--all)

# The peers want versions of their own; 4 GB.
.venv-peers/made: pyproject.toml tools/requirements.py
	@echo "Python: installing into .venv-peers: peers"
	@$(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/python tools/requirements.py peers > .venv-peers/requirements.txt
	@.venv-peers/bin/python -m pip install -q --progress-bar off -r .venv-peers/requirements.txt
	@.venv-peers/bin/python tools/link_checkout.py
	@touch $@

.PHONY: bench-peers
bench-peers: build .venv-peers/made ## Measure replay buffers beside peers (4 GB of packages)
	@.venv-peers/bin/python benchmarks/replay_loop.py

.PHONY: test-peers
test-peers: build .venv-peers/made ## The adapters for other libraries, with these (4 GB of packages)
	@.venv-peers/bin/python -m pytest -q tests/python/contrib_*_test.py \
	  $(foreach name,sb3 tianshou torchrl,"tests/python/examples_test.py::test_the_example_runs[$(name)_dqn.py]")

.venv-site/made: pyproject.toml tools/requirements.py
	@echo "Python: installing into .venv-site: closures, demo, site"
	@$(PYTHON) -m venv .venv-site
	@.venv-site/bin/python tools/requirements.py closures demo site > .venv-site/requirements.txt
	@.venv-site/bin/python -m pip install -q --progress-bar off -r .venv-site/requirements.txt
	@.venv-site/bin/python tools/link_checkout.py
	@touch $@

.PHONY: docs-site
docs-site: build .venv-site/made ## Build the documentation as a site into build/site, and follow its links
	@.venv-site/bin/python tools/docs_site.py

.PHONY: docs stubs
docs: ## Draw the pictures of docs/ again
	@$(PYTHON) tools/pictures.py
stubs: build ## Write the types of the native module to python/reverie/_reverie.pyi
	@$(VENV)/python tools/stubs.py

.PHONY: format lint
format: .venv/with-demo-test-dev ## Format C++ and Python
	@$(VENV)/python tools/lint.py --fix
lint: .venv/with-demo-test-dev ## Formats, rooms, ruff and mypy
	@$(VENV)/python tools/lint.py

.PHONY: clean
clean: ## Remove what was built; .venv stays
	rm -rf build python/reverie/*.so
