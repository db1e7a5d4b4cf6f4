# A wrapper for CMake and Ninja, which build in build/release, build/debug, build/asan, ...; see `make help`.
#
#   T='conv*'       a pattern that selects tests by ctest name (make test T='unit.*'), for `make test` and sanitizers
#   DATA=folder     your own images for `make demo`: one folder per class in train/ and val/
#   PREFIX=/usr     make install
#   CTEST_ARGS=...  more arguments for ctest in `make test`, e.g. '-LE slow'
#   GPU_CHECK_ARGS=...  options of scripts/gpu_check, e.g. --python ~/venv/bin/python for PyTorch
#   CMAKE_ARGS=...  more arguments for CMake, e.g. -DCMAKE_C_COMPILER=clang

CMAKE ?= cmake
CTEST ?= ctest
PREFIX ?= /usr/local
T ?= *
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
FUZZ_SECONDS ?= 60

# converts a shell pattern to ctest's regular expression; 'conv*' also matches unit.conv_x
pattern = ^([a-z0-9_]+[.])?$(subst ?,.,$(subst *,.*,$(subst .,[.],$(1))))$$

# $(call configure,FOLDER,OPTIONS); prints one line about missing software; CMake prints other failures
configure = $(CMAKE) -S . -B build/$(1) -G Ninja $(2) $(CMAKE_ARGS) >build/$(1).log 2>&1 || \
    { scripts/setup --check && cat build/$(1).log; exit 1; }
run_tests = $(CTEST) --test-dir build/$(1) -j$(JOBS) --output-on-failure --no-label-summary \
    --no-tests=error $(2)

.PHONY: build debug cuda gpu-check gpu-bundle demo check test tests asan ubsan tsan fuzz bench cover format golden install uninstall \
    dist deb setup clean help

build: ## build/tandem, release
	@mkdir -p build
	@$(call configure,release,-DCMAKE_BUILD_TYPE=Release)
	@$(CMAKE) --build build/release
	@ln -sfn release/tandem build/tandem

debug: ## build/debug/tandem, -O0 -g, every check on
	@mkdir -p build
	@$(call configure,debug,-DCMAKE_BUILD_TYPE=Debug)
	@$(CMAKE) --build build/debug

cuda: build ## build/release/libtandem_cuda.so, for NVIDIA GPUs; wants nvcc 13
	@$(CMAKE) --build build/release --target cuda

gpu-check: ## on a machine with an NVIDIA GPU: tests and speed on it, docs/results-gpu.md; 30 minutes, no network
	@scripts/gpu_check $(GPU_CHECK_ARGS)

gpu-bundle: cuda tests ## build/tandem-gpu.tar.xz: gpu-check for a machine without compilers and libraries
	@scripts/gpu_bundle

setup: ## install what is missing
	@scripts/setup

demo: setup ## from nothing to a trained model; DATA=folder takes your images
	@$(MAKE) --no-print-directory build
	@scripts/demo $(DATA)

tests: build ## build the tests
	@$(CMAKE) --build build/release --target tests

test: setup ## everything, or what matches T='conv*'
	@$(MAKE) --no-print-directory tests
	@$(call run_tests,release,-R '$(call pattern,$(T))' $(CTEST_ARGS))

check: build ## layers, limits, style, headers, formatting, docs, a clang build, static analysis
	@scripts/check

# sanitizers: the tests that take only seconds with them; asan includes LeakSanitizer
SANITIZED = ^(unit|property|fuzz|cuda[.]ops_small)([.]|$$)
asan: ## AddressSanitizer on unit, property and fuzz-corpus tests, and CUDA kernels on the CPU
ubsan: ## UndefinedBehaviorSanitizer on the same
asan_sanitizer = address
ubsan_sanitizer = undefined
asan ubsan:
	@mkdir -p build
	@$(call configure,$@,-DTANDEM_SANITIZE=$($@_sanitizer) -DTANDEM_TEST_SLOWDOWN=6)
	@$(CMAKE) --build build/$@ --target tests
	@$(call run_tests,$@,-R '$(if $(filter *,$(T)),$(SANITIZED),$(call pattern,$(T)))')

# libgomp is not instrumented, so OpenMP has one thread here; ThreadSanitizer checks the threads of our own code
tsan: ## ThreadSanitizer on the tests labelled threads
	@mkdir -p build
	@$(call configure,tsan,-DTANDEM_SANITIZE=thread -DTANDEM_TEST_SLOWDOWN=10)
	@$(CMAKE) --build build/tsan --target $(if $(filter *,$(T)),threads_tests,tests)
	@OMP_THREAD_LIMIT=1 TSAN_OPTIONS=halt_on_error=1 \
	    $(call run_tests,tsan,$(if $(filter *,$(T)),-L threads -E '^e2e[.]',-R '$(call pattern,$(T))'))

fuzz: ## fuzz F=jpeg for FUZZ_SECONDS (60), from its corpus; wants clang
	@scripts/fuzz "$(F)" $(FUZZ_SECONDS)

bench: build ## the table of tests/perf, against its baseline
	@scripts/bench

cover: ## line and branch report of the unit, property, ops and golden tests
	@mkdir -p build
	@$(call configure,cover,-DTANDEM_COVERAGE=ON -DTANDEM_TEST_SLOWDOWN=10)
	@$(CMAKE) --build build/cover --target tests
	@find build/cover -name '*.gcda' -delete
	@$(call run_tests,cover,-Q -E '^(e2e|perf)[.]') || echo "cover: some tests failed"
	@scripts/cover build/cover

format: ## clang-format in place
	@scripts/style --files | xargs clang-format -i

golden: tests ## rewrite the expected texts; review the diff
	@TANDEM_GOLDEN_WRITE=1 $(call run_tests,release,-R '^(golden[.]|cuda[.]plans)')

install: build ## to PREFIX (/usr/local): command, libraries, headers, pkg-config and CMake files
	@$(CMAKE) --install build/release --prefix $(PREFIX)

uninstall: ## remove from PREFIX what `make install` has put there
	@$(CMAKE) -DPREFIX=$(abspath $(PREFIX)) -P cmake/uninstall.cmake

version = $(shell awk '/^project.Tandem VERSION/ { print $$3 }' CMakeLists.txt)
dist: ## build/tandem-VERSION.tar.gz of the last commit; the same bytes each time
	@mkdir -p build
	@git rev-parse HEAD >/dev/null 2>&1 || { echo "dist: this folder is no git checkout" >&2; exit 1; }
	@git diff --quiet HEAD -- || echo "dist: what is not committed is left out"
	@git archive --format=tar --prefix=tandem-$(version)/ HEAD >build/tandem-$(version).tar
	@gzip -9nf build/tandem-$(version).tar
	@echo build/tandem-$(version).tar.gz

deb: ## Debian packages, in build/deb/packages
	@scripts/setup --deb
	@mkdir -p build
	@$(call configure,deb,-DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DTANDEM_TESTS=OFF)
	@$(CMAKE) --build build/deb
	@rm -rf build/deb/packages
	@umask 022 && cd build/deb && cpack -G DEB >../deb_cpack.log 2>&1 || { cat ../deb_cpack.log; exit 1; }
	@ls build/deb/packages/*.deb

clean: ## forget everything built; what setup fetched stays
	@find build -mindepth 1 -maxdepth 1 ! -name deps -exec rm -rf {} + 2>/dev/null || true

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile
