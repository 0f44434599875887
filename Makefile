# make demo       build, measure over a 1650 km path made on this machine, write report.html
# make test       every check and test
# make accept     verdicts that depend on timing: diagnosis, improvement, gateways (root, minutes)
# make sanitize   memory under Miri, memory and protocol under the address sanitizer (nightly)
# make bench      compare with iperf3, iperf, nuttcp, libfabric and UCX, write bench/RESULTS.md
# make attack     mutated input, kills, failing system calls, strangers (root)
# make libraries  what other programs load: for clearstream rdma run, and for MPI over iWARP; with
#                 clang what loads congestion controls (clearstream cc)
# make extras     these with clang, and what needs mpicc, where there is one (clearstream message
#                 --transport mpi)
# make static     the command as one small file for any Linux: target/packages/clearstream
# make install    that, its libraries, manual, completions and systemd units: PREFIX=/usr/local DESTDIR=
# make package    a deb and an rpm of the same in target/packages; as root they are tried out
# Each but install gets what it lacks (.ci/install).

SHELL := /bin/sh
.DEFAULT_GOAL := demo
export PATH := $(HOME)/.cargo/bin:$(PATH):/usr/sbin:/sbin

# Options for the comparison, for instance: make bench BENCH="--quick --only rdma"
BENCH ?=

# Sections and share of the attacks, for instance: make attack ATTACK="inputs --scale 0.1"
ATTACK ?=

# Where `make install` puts everything, below DESTDIR when that is given, and
# another program than that of `make static`.
PREFIX ?= /usr/local
DESTDIR ?=
PROGRAM ?=

.PHONY: demo test accept sanitize bench attack libraries extras static install uninstall package clean

demo:
	@.ci/install build
	@echo "demo: building, some minutes the first time"
	@cargo build --profile demo --locked --bin clearstream
	@.ci/demo

test:
	@.ci/install test
	@.ci/test

accept:
	@.ci/install test
	@.ci/test accept

sanitize:
	@.ci/sanitize

bench:
	@.ci/install bench
	@echo "bench: building, some minutes the first time"
	@cargo build --release --locked --bin clearstream
	@if command -v mpicc >/dev/null; then extras/mpi/library/build mpicc target/release/libclearstream_mpi.so; fi
	@PATH="$(CURDIR)/target/tools/peers/bin:$$PATH" cargo run --release --locked -p clearstream-bench -- $(BENCH)

attack:
	@.ci/install attack
	@cargo build -q --release --locked --bin clearstream
	@.ci/attack $(ATTACK)
	@if cargo +nightly fuzz --version >/dev/null 2>&1; then FUZZ_SECONDS=3 .ci/sanitize fuzz; \
	    else echo "attack: no cargo-fuzz with a nightly toolchain: fuzz targets were not run (.ci/sanitize fuzz gets both)"; fi

libraries:
	@packaging/libraries target/release

extras:
	@.ci/install extras
	@packaging/libraries target/release
	@extras/mpi/library/build --all target/release

static:
	@.ci/install package
	@packaging/static
	@packaging/libraries

install:
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' $(if $(PROGRAM),PROGRAM='$(PROGRAM)') packaging/install

uninstall:
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' packaging/install --remove

package:
	@.ci/install package
	@packaging/package
	@if [ "$$(id -u)" -eq 0 ]; then packaging/check $$(ls target/packages/*.deb target/packages/*.rpm 2>/dev/null); \
	    else echo "package: not root: the packages were not tried out (packaging/check)"; fi

clean:
	cargo clean
