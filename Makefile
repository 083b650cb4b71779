# `make` lists the targets. Each installs what it needs: see scripts/setup.
KAFKA ?= 4.3.0
CAPTURE_SECONDS ?= 120
SECONDS ?= 600
SEED ?=
TLS ?=
RECORDS ?=
BASELINE ?=
COMMIT ?= HEAD
ROUNDS ?=
INDEX ?= none
KAFKA_TESTED = kafka:4.3.0 kafka:3.9.1
BIN = .venv/bin
# Real-broker tests wait half of the time, so two run at once. File order, because tests that share a cluster affect
# each other.
TWO_AT_ONCE = -p no:randomly -n 2 --dist worksteal
AGENT = build/agent/shoal-agent.jar
AGENT_TESTED = $(patsubst %,kafka:%,3.9.0 3.9.1 3.9.2 4.0.0 4.0.2 4.1.0 4.1.1 4.1.2 4.2.0 4.3.0 4.3.1)

.DEFAULT_GOAL = help
.PHONY: help venv agent demo demo-small demo-offsets demo-capture docs test test-slow test-agent test-spark check \
	package-check deploy-check fuzz torture torture-models ops scenarios bench bench-compare bench-tls flood \
	bench-coalesce bench-workers bench-agent bench-legacy bench-spark bench-cascade clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: ## Create .venv with Shoal and its tools
	@scripts/setup

agent: $(AGENT) ## Build the Java agent: a broker with it accepts several batches per partition

$(AGENT): agent/pom.xml $(shell find agent/src -type f)
	@scripts/setup jdk
	@flock build/setup.lock mvn --batch-mode --quiet --file agent/pom.xml package
	@mv build/agent/target/shoal-agent.jar $@ # running brokers keep the old file

demo: ## MirrorMaker 2 alone and through Shoal, real brokers (10 minutes; RECORDS=1000000: 3; ROUNDS=5 TASKS=2 TLS=1)
	@scripts/setup kafka:$(KAFKA)
	@$(BIN)/python -m shoal.scenarios.demo --kafka $(KAFKA) $(if $(TLS),--tls) $(if $(RECORDS),--records $(RECORDS)) \
		$(if $(TASKS),--tasks $(TASKS)) $(if $(ROUNDS),--rounds $(ROUNDS))

demo-small: $(AGENT) ## The demo with batches of three records, also with the agent (RECORDS=200000 ROUNDS=5)
	@scripts/setup kafka:$(KAFKA)
	@$(BIN)/python -m shoal.scenarios.demo --kafka $(KAFKA) --small $(if $(RECORDS),--records $(RECORDS)) \
		$(if $(TASKS),--tasks $(TASKS)) $(if $(ROUNDS),--rounds $(ROUNDS))

demo-offsets: $(AGENT) ## Topics with the offsets of their source, and a group that moves (3 minutes; RECORDS=200000)
	@scripts/setup kafka:$(KAFKA)
	@$(BIN)/python -m shoal.scenarios.demo_offsets --kafka $(KAFKA) $(if $(RECORDS),--records $(RECORDS))

demo-capture: ## Capture a real run and analyse it with Spark (8 minutes; CAPTURE_SECONDS=300)
	@scripts/setup java kafka:$(KAFKA)
	@$(BIN)/python -m shoal.scenarios.demo_capture --kafka $(KAFKA) --seconds $(CAPTURE_SECONDS)

test: $(AGENT) ## All tests except the slow ones, with real brokers
	@scripts/setup kcat tshark krb5 old-clients $(KAFKA_TESTED) class-archives
	@$(BIN)/pytest $(TWO_AT_ONCE) --durations=20 --durations-min=20 -m "not slow and not agent and not spark"

test-slow: $(AGENT) ## The slow tests
	@scripts/setup kcat tshark krb5 old-clients $(KAFKA_TESTED) class-archives
	@$(BIN)/pytest -m "slow and not agent"

test-agent: $(AGENT) ## The agent on brokers of every supported version (45 minutes)
	@scripts/setup $(AGENT_TESTED)
	@$(BIN)/pytest $(TWO_AT_ONCE) tests/brokers/agent \
		$(addprefix tests/brokers/mirror/same_offsets/,test_copies.py test_replicas.py)

test-spark: ## Tests that start Spark
	@scripts/setup java
	@$(BIN)/pytest -p no:randomly -m spark

package-check: ## Wheel and sdist, clean installs on each Python, every trio that is admitted (10 minutes)
	@scripts/setup package
	@scripts/package-check

deploy-check: ## Container image, systemd unit, Kubernetes manifests and Helm chart in deploy/
	@scripts/setup deploy
	@scripts/deploy-check

check: ## Lint, format, types, import contracts, plain English, line length
	@scripts/setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	scripts/prose
	scripts/pictures --check

docs: ## The documentation as a site, in build/docs; a broken link is an error
	@scripts/setup docs
	@scripts/pictures
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/docs/index.html (its search needs HTTP: python3 -m http.server -d build/docs)"

fuzz: ## Hostile bytes for every decoder (some minutes)
	@scripts/setup fuzz
	@$(BIN)/python -m tests.fuzz

torture: $(AGENT) ## Mirrors through Shoal under random faults, on real brokers (SECONDS=600 SEED=7)
	@scripts/setup cc $(KAFKA_TESTED) class-archives
	@$(BIN)/python -m tests.torture --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

torture-models: ## The same on models, without brokers: thousands of schedules per minute
	@scripts/setup
	@$(BIN)/python -m tests.torture_models --jobs 2 --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

ops: $(AGENT) ## What operators rely on, shown on real brokers: build/ops/report.json
	@scripts/setup prometheus kafka:$(KAFKA)
	@$(BIN)/python -m tests.ops --kafka $(KAFKA)

scenarios: ## All scenarios of `shoal replay`, on real brokers (some minutes)
	@scripts/setup kafka:$(KAFKA)
	@$(BIN)/python -m shoal replay all --kafka $(KAFKA)

bench: ## Shoal and other proxies side by side; the ratios against bench/baseline.json (4 minutes; BASELINE=write)
	@scripts/setup haproxy kroxylicious kafka-proxy kafka:$(KAFKA)
	@$(BIN)/python -m bench --kafka $(KAFKA) $(if $(filter write,$(BASELINE)),--write-baseline)

bench-compare: ## Shoal of this tree and of another commit, side by side (COMMIT=HEAD~1 ROUNDS=5 INDEX=both)
	@scripts/setup kafka:$(KAFKA)
	@$(BIN)/python -m bench.compare $(COMMIT) --kafka $(KAFKA) $(if $(ROUNDS),--rounds $(ROUNDS)) --index $(INDEX)

bench-tls: ## TLS in Shoal, HAProxy and Kroxylicious: CPU, handshakes, latency, memory (6 minutes)
	@scripts/setup haproxy kroxylicious kafka-proxy kafka:$(KAFKA)
	@$(BIN)/python -m bench.tls --kafka $(KAFKA)

flood: ## 50 working clients beside 10,000 hostile connections a second (5 minutes)
	@scripts/setup kafka:$(KAFKA)
	@$(BIN)/python -m bench.flood --kafka $(KAFKA)

bench-coalesce: ## 200 producers: directly, through Shoal, and coalesced
	@scripts/setup kafka:$(KAFKA)
	@$(BIN)/python -m bench.coalesce --kafka $(KAFKA)

bench-agent: $(AGENT) ## Ordinary produce requests to a broker with and without the agent
	@scripts/setup kafka:$(KAFKA)
	@$(BIN)/python -m bench.agent --kafka $(KAFKA)

bench-workers: ## One worker and two before a broker that costs nothing, HAProxy beside them (1 minute)
	@scripts/setup haproxy cc
	@$(BIN)/python -m bench.workers --haproxy

bench-legacy: ## 500 slow consumers of Fetch v2: Kafka 3.9.1, and Kafka 4.3.0 behind Shoal
	@scripts/setup $(KAFKA_TESTED)
	@$(BIN)/python -m bench.legacy

bench-spark: ## The Spark jobs on 1, 10 and 30 million synthetic rows
	@scripts/setup java
	@$(BIN)/python -m bench.spark --millions 1 10 30

bench-cascade: ## The cascade beside Kafka Streams with the same counters, 1 and 10 million rows (15 minutes)
	@scripts/setup jdk kafka:$(KAFKA)
	@$(BIN)/python -m bench.cascade_peer

clean: ## Remove everything that the other targets create
	rm -rf build .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
