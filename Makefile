# SPDX-License-Identifier: Apache-2.0
#
# A thin front for people's habits: Meson does the building (meson.build), tools/setup.sh the packages, tests/run.py the
# testing. BUILD=dir builds elsewhere; T=pattern narrows `make test`.

BUILD ?= build
ASAN ?= build-asan
FUZZ_TIME ?= 20
PREFIX ?= /usr/local
PYTHON := $(firstword $(wildcard /usr/bin/python3) python3)
T ?=
export LC_ALL ?= C.UTF-8

.PHONY: help run build test asan fuzz test-reproducible test-vm test-compat test-providers test-long bench bench-providers lint install clean
.DEFAULT_GOAL := help

help:
	@echo "make run        install missing packages, build, run an example tool in a sandbox, print its receipt"
	@echo "make test       the same set-up, then all tests (T=pattern: only those); under 10 minutes on 2 quiet cores"
	@echo "make build      packages and build only"
	@echo "make asan       ASan+UBSan build by clang: unit tests, fuzz corpora, $(FUZZ_TIME) s of fuzzing per target"
	@echo "make fuzz       fuzz every target for FUZZ_TIME seconds (now $(FUZZ_TIME))"
	@echo "make test-reproducible  two builds at different paths are equal byte for byte"
	@echo "make test-vm    the cgroup v2 and rootless cases on Debian's kernel in QEMU"
	@echo "make test-compat  other people's clients, servers and registries: PostgreSQL, letta-client, pip and npm"
	@echo "make test-providers  providers beside local: runc, crun, Docker, Podman, gVisor, virtual machines of QEMU"
	@echo "make test-long  10,000 runs without a leak, 1,000 random programs, every case 100 times; hours"
	@echo "make bench      the numbers of docs/BENCHMARKS.md, against bubblewrap, firejail, runc and Docker"
	@echo "make bench-providers  those of the other providers (T=--quick for a first look)"
	@echo "make lint       clang-format and clang-tidy"
	@echo "make install    to PREFIX (now $(PREFIX)), below DESTDIR"
	@echo "make clean      remove the build directories"

run:
	@tools/setup.sh build
	@tools/build.sh $(BUILD)
	@tools/demo.sh $(BUILD)

build:
	@tools/setup.sh build
	@tools/build.sh $(BUILD)

test:
	@tools/setup.sh build test
	@tools/build.sh $(BUILD) -Dtests=true
	@$(PYTHON) tests/run.py --build $(BUILD) $(T)

asan:
	@tools/setup.sh build test
	@tools/sanitize.sh $(ASAN) $(FUZZ_TIME)

fuzz:
	@tools/setup.sh build test
	@ONLY_FUZZ=1 tools/sanitize.sh $(ASAN) $(FUZZ_TIME)

test-reproducible:
	@tools/setup.sh build test
	@$(PYTHON) tests/run.py --build $(BUILD) --no-install --kind repro

test-vm:
	@tools/setup.sh build test vm
	@tools/build.sh $(BUILD) -Dtests=true
	@$(PYTHON) tests/vm/run.py --build $(BUILD)

test-compat:
	@tools/setup.sh build test compat
	@tools/build.sh $(BUILD) -Dtests=true
	@$(PYTHON) tests/run.py --build $(BUILD) --kind compat $(T)

test-providers:
	@tools/setup.sh build test vm providers
	@tools/build.sh $(BUILD) -Dtests=true
	@tools/runsc.sh $(BUILD)
	@$(PYTHON) tests/run.py --build $(BUILD) --kind providers $(T)

test-long:
	@tools/setup.sh build test
	@tools/build.sh $(BUILD) -Dtests=true
	@$(PYTHON) tests/run.py --build $(BUILD) --long $(T)

bench:
	@tools/setup.sh build test bench
	@tools/build.sh $(BUILD) -Dtests=true
	@$(PYTHON) tests/bench/run.py --build $(BUILD)

bench-providers:
	@tools/setup.sh build test vm providers bench
	@tools/build.sh $(BUILD) -Dtests=true
	@tools/runsc.sh $(BUILD)
	@$(PYTHON) tests/bench/providers.py --build $(BUILD) $(if $(T),,--out docs) $(T)

lint:
	@tools/setup.sh build test lint
	@tools/build.sh $(BUILD) -Dtests=true
	@tools/lint.sh $(BUILD)

install:
	@tools/setup.sh build
	@tools/build.sh $(BUILD) -Dprefix=$(PREFIX)
	@meson install -C $(BUILD) --no-rebuild $(if $(DESTDIR),--destdir $(DESTDIR))
	@$(if $(DESTDIR),,! [ "$$(id -u)" = 0 ] || PATH=$$PATH:/usr/sbin:/sbin ldconfig)

clean:
	rm -rf $(BUILD) $(ASAN)
