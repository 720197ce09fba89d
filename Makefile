# Everything that is built here is built with one profile (release), in one target directory outside the clone.
# `make demo` and `make test` are the two commands of the README.

export CARGO_TARGET_DIR ?= $(HOME)/.cache/headwater-target
export PATH := $(PATH):$(HOME)/.cargo/bin

HEADWATER := $(CARGO_TARGET_DIR)/release/headwater

.PHONY: help deps build demo test check bench fmt

help:
	@echo "make demo    install what is missing, build, and run the demonstration"
	@echo "make test    install what is missing, build, and run what CI runs"
	@echo "make check   format, lints, documentation and all tests"
	@echo "make build   build the binary: $(HEADWATER)"
	@echo "make bench   run the benchmarks"
	@echo "make fmt     format the sources"
	@echo "make deps    install what the build and the tests need (Debian, Ubuntu)"

deps:
	@.ci/deps

build: deps
	cargo build --release --locked

demo: build
	$(HEADWATER) demo

test: build
	sql-tests/run-cases $(HEADWATER)

check: deps
	cargo fmt --check
	cargo clippy --release --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --release --locked --no-deps --document-private-items
	cargo test --release --locked

bench: deps
	cargo bench --locked --profile release

fmt:
	cargo fmt
