# make demo       build, measure over a 1650 km path made on this machine, write report.html
# make test       every check and test
# make sanitize   memory under Miri, memory and protocol under the address sanitizer (nightly)
# make bench      compare with iperf3, iperf, nuttcp, libfabric and UCX, write bench/RESULTS.md
# make attack     mutated input, kills, failing system calls, strangers (root)
# make extras     what needs clang: congestion controls for the kernel (clearstream cc)
# Each installs what it lacks (.ci/install).

SHELL := /bin/sh
.DEFAULT_GOAL := demo
export PATH := $(HOME)/.cargo/bin:$(PATH):/usr/sbin:/sbin

# Options for the comparison, for instance: make bench BENCH="--quick --only rdma"
BENCH ?=

# Sections and share of the attacks, for instance: make attack ATTACK="inputs --scale 0.1"
ATTACK ?=

.PHONY: demo test sanitize bench attack extras clean

demo:
	@.ci/install build
	@echo "demo: building (some minutes the first time)"
	@cargo build -q --release --locked --bin clearstream
	@.ci/demo

test:
	@.ci/install test
	@.ci/test

sanitize:
	@.ci/sanitize

bench:
	@.ci/install bench
	@echo "bench: building (some minutes the first time)"
	@cargo build -q --release --locked --bin clearstream
	@cargo run -q --release --locked -p clearstream-bench -- $(BENCH)

attack:
	@.ci/install attack
	@cargo build -q --release --locked --bin clearstream
	@.ci/attack $(ATTACK)

extras:
	@.ci/install extras
	@cargo build -q --release --locked -p clearstream-bpf

clean:
	cargo clean
