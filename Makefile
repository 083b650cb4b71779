# `make` lists the targets. Each does its own set-up: see scripts/setup.
KAFKA ?= 4.3.0
CAPTURE_SECONDS ?= 120
SECONDS ?= 600
SEED ?=
KAFKA_TESTED = kafka:4.3.0 kafka:3.9.1
BIN = .venv/bin
# Half of the time of tests with brokers is waiting. In the order of the files: tests that share a cluster see what others did to it.
TWO_AT_ONCE = -p no:randomly -n 2 --dist worksteal
AGENT = build/agent/shoal-agent.jar
AGENT_TESTED = $(patsubst %,kafka:%,3.9.0 3.9.1 3.9.2 4.0.0 4.0.2 4.1.0 4.1.1 4.1.2 4.2.0 4.3.0 4.3.1)

.DEFAULT_GOAL = help
.PHONY: help venv agent demo demo-small demo-capture test test-slow test-agent test-spark check fuzz torture torture-models scenarios bench bench-coalesce bench-agent bench-legacy bench-spark clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: ## Virtual environment with Shoal and its tools, in .venv
	@scripts/setup

agent: $(AGENT) ## The Java agent by which a Kafka broker takes several batches per partition

$(AGENT): agent/pom.xml $(shell find agent/src -type f)
	@scripts/setup jdk
	@flock build/setup.lock mvn --batch-mode --quiet --file agent/pom.xml package
	@mv build/agent/target/shoal-agent.jar $@ # a broker that runs with the old one keeps it

demo: ## MirrorMaker 2 alone and through Shoal, side by side on real brokers (KAFKA=3.9.1 for another version)
	@scripts/setup kafka:$(KAFKA)
	@$(BIN)/python -m shoal.scenarios.demo --kafka $(KAFKA)

demo-small: $(AGENT) ## The same with batches of three records, also to a broker that takes many of them in one request
	@scripts/setup kafka:$(KAFKA)
	@$(BIN)/python -m shoal.scenarios.demo --kafka $(KAFKA) --small

demo-capture: ## Traffic of a real run is captured, and Spark says what there is to know of it (some 8 minutes; CAPTURE_SECONDS=300 for more traffic)
	@scripts/setup java kafka:$(KAFKA)
	@$(BIN)/python -m shoal.scenarios.demo_capture --kafka $(KAFKA) --seconds $(CAPTURE_SECONDS)

test: $(AGENT) ## All tests but the slow ones, with real brokers
	@scripts/setup kcat tshark old-clients $(KAFKA_TESTED)
	@$(BIN)/pytest $(TWO_AT_ONCE) -m "not slow and not agent and not spark"

test-slow: $(AGENT) ## The slow tests
	@scripts/setup kcat tshark old-clients $(KAFKA_TESTED)
	@$(BIN)/pytest -m slow

test-agent: $(AGENT) ## The agent on brokers of every version that it knows, for some minutes
	@scripts/setup $(AGENT_TESTED)
	@$(BIN)/pytest tests/brokers/agent

test-spark: ## Tests that start Spark
	@scripts/setup java
	@$(BIN)/pytest -p no:randomly -m spark

check: ## Lint, format, types, import contracts, plain English
	@scripts/setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	scripts/prose

fuzz: ## Hostile bytes into every decoder, for some minutes
	@scripts/setup fuzz
	@$(BIN)/python -m tests.fuzz

torture: $(AGENT) ## Mirrors through Shoal under faults that a seed invents, on real brokers (SECONDS=600 SEED=7; report in build/torture)
	@scripts/setup cc $(KAFKA_TESTED)
	@$(BIN)/python -m tests.torture --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

torture-models: ## The same on models of mirrors and brokers, thousands of schedules a minute (SECONDS=600 SEED=7; no brokers)
	@scripts/setup
	@$(BIN)/python -m tests.torture_models --jobs 2 --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

scenarios: ## Every scenario of shoal/scenarios/cases through Shoal, on real brokers (some minutes)
	@scripts/setup kafka:$(KAFKA)
	@$(BIN)/python -m shoal replay all --kafka $(KAFKA)

bench: ## Shoal against HAProxy and a direct connection, side by side
	@scripts/setup haproxy kafka:$(KAFKA)
	@$(BIN)/python -m bench

bench-coalesce: ## 200 producers directly, through Shoal, and joined: broker requests, CPU, latency
	@scripts/setup kafka:$(KAFKA)
	@$(BIN)/python -m bench.coalesce --kafka $(KAFKA)

bench-agent: $(AGENT) ## Ordinary produce to a broker with the agent and to one without
	@scripts/setup kafka:$(KAFKA)
	@$(BIN)/python -m bench.agent --kafka $(KAFKA)

bench-legacy: ## 500 slow consumers of Fetch v2 and a fast one: Kafka 3.9.1 alone, and Kafka 4.3.0 behind Shoal (some 4 minutes)
	@scripts/setup $(KAFKA_TESTED)
	@$(BIN)/python -m bench.legacy

bench-spark: ## Speed of the Spark jobs over 1, 10 and 30 million synthetic rows
	@scripts/setup java
	@$(BIN)/python -m bench.spark --millions 1 10 30

clean: ## Remove what the targets above made
	rm -rf build .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
