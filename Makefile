# `make` lists the targets. Each does its own set-up: see scripts/setup.
KAFKA ?= 4.3.0
KAFKA_TESTED = kafka:4.3.0 kafka:3.9.1
BIN = .venv/bin

.DEFAULT_GOAL = help
.PHONY: help venv demo test test-slow check fuzz bench bench-coalesce clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: ## Virtual environment with Shoal and its tools, in .venv
	@scripts/setup

demo: ## MirrorMaker 2 alone and through Shoal, side by side on real brokers (KAFKA=3.9.1 for another version)
	@scripts/setup kafka:$(KAFKA)
	@$(BIN)/python -m shoal.scenarios.demo --kafka $(KAFKA)

test: ## All tests but the slow ones, with real brokers
	@scripts/setup kcat $(KAFKA_TESTED)
	@$(BIN)/pytest -m "not slow"

test-slow: ## The slow tests
	@scripts/setup kcat $(KAFKA_TESTED)
	@$(BIN)/pytest -m slow

check: ## Lint, format, types, import contracts
	@scripts/setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

fuzz: ## Hostile bytes into every decoder, for some minutes
	@scripts/setup fuzz
	@$(BIN)/python -m tests.fuzz

bench: ## Shoal against HAProxy and a direct connection, side by side
	@scripts/setup haproxy kafka:$(KAFKA)
	@$(BIN)/python -m bench

bench-coalesce: ## 200 producers directly, through Shoal, and joined: broker requests, CPU, latency
	@scripts/setup kafka:$(KAFKA)
	@$(BIN)/python -m bench.coalesce --kafka $(KAFKA)

clean: ## Remove what the targets above made
	rm -rf build .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
