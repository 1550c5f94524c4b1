# The commands of the project. `make` alone lists them.
#
# Each target sets up what it needs and says so; a second run finds everything in place.
# CI runs `make test` and nothing else.

.DEFAULT_GOAL := help
.PHONY: help run test test-long bench bench-peers setup fmt deny clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

run: ## build, and run the daemon: it says how to use it
	@scripts/setup build run rust
	@scripts/get-criu || true
	@scripts/run

test: setup ## everything that must hold: format, lints, licences, tests
	@scripts/test

test-long: setup ## the same, and the tests that take their time
	@scripts/setup machine || true
	@SOMA_LONG=1 scripts/test

bench: ## our figures beside those of bubblewrap and Docker
	@scripts/setup build run bench rust
	@scripts/bench

bench-peers: ## install the peer of `make bench` that is not asked of everybody: Docker
	@scripts/setup peers
	@scripts/setup client

setup: ## install what is missing, and say what and why
	@scripts/setup build run test rust rust-tools
	@scripts/get-criu || true
	@scripts/get-e2b || true
	@scripts/get-interpreters || true
	@scripts/get-sshd || true
	@scripts/get-leap0 || true
	@scripts/get-schemathesis || true

fmt: ## format the code
	@cargo fmt --all

deny: ## judge the dependencies: licences, bans, sources (installs cargo-deny)
	@cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny
	@cargo deny check licenses bans sources

clean: ## remove what was built and fetched
	@cargo clean
	@rm -rf .tools
