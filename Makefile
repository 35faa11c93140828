# README's two commands are `make run` and `make test`. Every target sets up what it needs.
PY := .venv/bin/python
export PYTHONDONTWRITEBYTECODE := # who forbids bytecode has every child process of the tests compile all of its imports
.DEFAULT_GOAL := help

.PHONY: run run-cluster help setup services lint format generate test test-clients test-models test-torture test-spark test-rest test-unit thorough explore mutate simulate torture alarms pictures late-ends pauses soak bench fuzz lock sbom image kubernetes compat engines site proof restore-torture scrub-damages
help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | expand -t 16

setup: ## the pinned virtual environment under .venv
	@bash deploy/setup/venv.sh

services: setup ## build etcd, the S3 servers and the chart's tools; bring jars, npm packages, kcat, Prometheus, Chromium, kafka-python's tests
	$(PY) -m deploy.services build etcd minio versitygw helm kubeconform kube-score porcupine
	$(PY) -m deploy.setup.jars iceberg kafka connect mirror streams kit rest sparkkafka
	@$(PY) -m deploy.setup.class_archive >/dev/null
	@$(PY) -m deploy.setup.node >/dev/null
	@$(PY) -m deploy.setup.kcat >/dev/null
	@$(PY) -m deploy.setup.prometheus >/dev/null
	@$(PY) -m deploy.setup.chromium >/dev/null
	@$(PY) -m deploy.setup.kafka_python_tests >/dev/null

lint: setup ## ruff, mypy strict, import contracts
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports

format: setup ## rewrite the code in the house format
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

generate: setup ## rewrite everything that is generated and committed
	sh deploy/setup/generate_protos.sh
	$(PY) -m agent.net.wire.generate
	$(PY) -m agent.config.docs
	$(PY) -m agent.telemetry.docs
	$(PY) -m deploy.chart
	$(PY) -m agent.kafka.handlers.docs
	$(PY) -m agent.kafka.authority.docs
	$(PY) -m agent.http.docs
	$(PY) -m agent.architecture
	$(PY) -m tests.compat.suite.page
	$(PY) -m tests.engines.page

test-unit: setup ## the inner loop: no services
	$(PY) -m pytest tests -m "not services" -q

CLIENTS := tests/compat --ignore=tests/compat/suite tests/deploy tests/versions
CLIENTS_FIRST := $(wildcard tests/compat/test_[a-l]*.py)
CLIENTS_LAST := tests/compat $(addprefix --ignore=,tests/compat/suite $(CLIENTS_FIRST))
SUITE := tests/compat/suite tests/engines
PLAYED := tests/sim
MODELS_MORE := tests/explore tests/mutation tests/checker tests/property tests/golden tests/tidy
MODELS := $(PLAYED) $(MODELS_MORE)
TORMENT := tests/torture
SPARK := tests/spark
SPARK_FIRST := $(wildcard tests/spark/test_[a-e]*.py)
SPARK_LAST := $(wildcard tests/spark/test_[p-z]*.py)
SPARK_BETWEEN := $(filter-out $(SPARK_FIRST) $(SPARK_LAST),$(wildcard tests/spark/test_*.py))
AUDITS := $(wildcard tests/unit/agent/cli/test_audit*.py)
OTHERS := tests/compat tests/engines tests/deploy tests/versions $(MODELS) $(TORMENT) $(SPARK)
REST := tests $(addprefix --ignore=,$(OTHERS))
ROOMS := $(patsubst %/,%,$(filter-out tests/unit/agent/,$(filter-out %__pycache__/,$(wildcard tests/unit/*/))))
REST_FIRST := $(REST) $(addprefix --ignore=,$(AUDITS) $(ROOMS))
LONGEST := --durations=15 --durations-min=20
QUICK := -m "not thorough"

# `make` by its name: of a line with $(MAKE), `make -n test` would run all.
test: setup ## lint, and all that is not marked thorough: real etcd, S3 servers, Kafka clients, Spark; six parts side by side, as most wait a lot
	@mkdir -p build; rm -f build/test-*.log build/failed.jsonl; \
	make lint > build/test-lint.log 2>&1 & lint=$$!; \
	trap 'kill $$lint' INT TERM; \
	make services || { kill $$lint; exit 1; }; \
	part() { \
		name=$$1; shift; $(PY) -m pytest $(QUICK) $(LONGEST) "$$@" > build/test-$$name.log 2>&1 & running=$$!; \
		trap 'kill $$running; exit 1' INT TERM; wait $$running; \
	}; \
	worst() { [ $$1 -gt $$2 ] && return $$1; return $$2; }; \
	after() { first=$$?; "$$@"; worst $$? $$first; }; \
	(part clients $(CLIENTS_FIRST) tests/deploy tests/versions; after part spark-last $(SPARK_LAST)) & clients=$$!; \
	(part clients-more $(CLIENTS_LAST); after part spark $(SPARK_FIRST)) & others=$$!; \
	(part suite $(SUITE); after part audits $(AUDITS); after part spark-more $(SPARK_BETWEEN)) & suite=$$!; \
	(part torture $(TORMENT); after part models-more $(MODELS_MORE)) & torture=$$!; \
	(part models $(PLAYED); after part rooms $(ROOMS)) & models=$$!; \
	trap 'kill $$lint $$clients $$others $$suite $$torture $$models' INT TERM; \
	$(PY) -m pytest $(QUICK) $(LONGEST) $(REST_FIRST); failed=$$?; \
	for each in $$lint $$clients $$others $$suite $$torture $$models; do wait $$each; worst $$? $$failed; failed=$$?; done; \
	cat $(addprefix build/test-,$(addsuffix .log,lint models rooms models-more torture spark spark-more spark-last suite audits clients clients-more)); \
	[ $$failed = 1 ] && { $(PY) -m tests.equipment.again; failed=$$?; }; exit $$failed

thorough: services ## what `make test` leaves out for its time, beside what `make torture` runs; before an issue is closed
	$(PY) -m pytest tests --ignore=tests/torture -m thorough --durations=0 --durations-min=20

test-clients: services ## the part of it with Kafka clients and tools, other engines, charts, versions
	$(PY) -m pytest $(CLIENTS)
	$(PY) -m pytest $(SUITE)

test-models: services ## the part that plays: simulation, explorer, properties, golden stories, house rules
	$(PY) -m pytest $(MODELS)

test-torture: services ## the part that hurts: clusters under faults, deaths between any two steps
	$(PY) -m pytest $(TORMENT)

test-spark: services ## the part with Spark
	$(PY) -m pytest $(SPARK)

test-rest: services ## all other tests
	$(PY) -m pytest $(REST)

compat: services ## the compatibility suite, whole, against BROKER=kafka|floe; keeps the results (ONLY=expression)
	$(PY) -m pytest tests/compat/suite --broker $(or $(BROKER),floe) --whole-suite --keep-results $(if $(ONLY),-k "$(ONLY)")
	$(if $(ONLY),,$(PY) -m pytest tests/compat/against --broker $(or $(BROKER),floe) --keep-results)
	$(PY) -m tests.compat.suite.page

engines: services ## Spark, DuckDB, Polars and others read topics' tables; writes docs/engines.md from what they answer
	.venv/bin/uv venv -q --allow-existing --python .venv/bin/python build/engines
	.venv/bin/uv pip sync -q --python build/engines/bin/python --require-hashes deploy/setup/engines.lock
	$(PY) -m tests.engines

site: setup ## the pages of docs/ as a site with a search, in build/site; every link and anchor has to lead somewhere
	.venv/bin/uv venv -q --allow-existing --python .venv/bin/python build/site-venv
	.venv/bin/uv pip sync -q --python build/site-venv/bin/python --require-hashes deploy/setup/site.lock
	build/site-venv/bin/python -m mkdocs build --strict

explore: setup ## every order of events in small clusters, and broken rules; the table in build/explore (ONLY=name, JOBS=scopes side by side)
	$(PY) -m tests.explore --only "$(ONLY)" --jobs $(or $(JOBS),1)

mutate: setup ## small changes of the core that no quick test notices, in build/mutation.txt (SECONDS=900, SEED, ONLY=a file, HAND=1: the wrong lines of by_hand.py)
	$(PY) -m tests.mutation --seconds $(or $(SECONDS),900) --seed $(or $(SEED),1) --only "$(ONLY)" $(if $(HAND),--hand)

simulate: setup ## a cluster in virtual time, SEEDS=n from FIRST=m by JOBS=j; SEED=n or PLAN=file: one with its trace and page (SHRINK=1); PAIRS=1: two faults at once more (SEED=n PAIR=a+b: one; KNOWN=pairs.json: go on); SICK=1: one agent is sick; PROGRESS=file: in several goes; CONTROLS=1: rules broken
	PYTHONHASHSEED=0 $(PY) -m tests.sim --seeds $(or $(SEEDS),100) --first $(or $(FIRST),1) --jobs $(or $(JOBS),1) $(if $(SEED),--seed $(SEED)) \
		$(if $(PLAN),--plan $(PLAN)) $(if $(SHRINK),--shrink) $(if $(SICK),--sick) $(if $(CONTROLS),--controls) \
		$(if $(PAIRS),--pairs) $(if $(PAIR),--pair $(PAIR)) $(if $(KNOWN),--known $(KNOWN)) $(if $(PROGRESS),--progress $(PROGRESS))

restore-torture: services ## etcd lost under load and the cluster restored, RUNS times (SEED=n is the first run's; MBPS=10: so much load)
	$(PY) -m tests.torture.restoring --runs $(or $(RUNS),10) $(if $(SEED),--seed $(SEED)) $(if $(MBPS),--mbps $(MBPS)) $(if $(HOW),--how "$(HOW)")

torture: services ## every fault once, every step of a death, all named experiments (SEED=n repeats one)
	TORTURE=full $(PY) -m pytest tests/torture tests/versions/test_rolling_upgrade.py -s

late-ends: services ## transactions of v1 whose EndTxn comes late, MINUTES=n, BROKER=floe|embedded|kafka (SEED=n, MIX=positions)
	$(PY) -m tests.torture.late_ends --minutes $(or $(MINUTES),2) --broker $(or $(BROKER),floe) $(if $(SEED),--seed $(SEED)) $(if $(MIX),--mix $(MIX))

pauses: services ## how long clients wait while one agent of three is not well (REPEATS=n, ONLY="without etcd")
	$(PY) -m tests.torture.pauses --repeats $(or $(REPEATS),4) $(if $(ONLY),--only "$(ONLY)")

pictures: services ## the pictures of the console and of the dashboards in the docs, drawn anew
	$(PY) -m tests.compat.console_pictures
	$(PY) -m tests.compat.dashboards.pictures

alarms: services ## do the chart's alerts ring within a minute, by a real Prometheus (ONLY="etcd", HEALTH=minutes)
	$(PY) -m tests.torture.alarms $(if $(ONLY),--only "$(ONLY)") $(if $(HEALTH),--health $(HEALTH))

soak: services ## faults for MINUTES=n, repeated by SEED=n
	$(PY) -m tests.torture.soak --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

proof: services ## every published experiment by its name, judged by all, in one report: build/proof (MINUTES=60, SEED=n, ONLY="run run")
	$(PY) -m tests.proof --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only "$(ONLY)")

scrub-damages: services ## a thousand random damages of small buckets, each found and mended if it can be; 40 more at a MinIO (DAMAGES=n, S3=n, SEED=n: the first cluster's)
	PYTHONHASHSEED=0 $(PY) -m tests.unit.agent.background.scrub_runs --damages $(or $(DAMAGES),1000) --seed $(or $(SEED),19) --s3 $(or $(S3),40)

bench: services ## every figure of docs/benchmarks.md (ONLY=name: one bench; of restore GB, PARTITIONS, BEHIND_MB, BATCH, BUCKET)
	$(if $(GB),GB=$(GB)) $(if $(PARTITIONS),PARTITIONS=$(PARTITIONS)) $(if $(BEHIND_MB),BEHIND_MB=$(BEHIND_MB)) $(if $(BATCH),BATCH=$(BATCH)) $(if $(BUCKET),BUCKET=$(BUCKET)) \
		$(PY) -m tests.bench --only "$(ONLY)"

fuzz: setup ## hostile frames, logins and TLS handshakes, each for SECONDS=n
	$(PY) -m tests.fuzz_wire --seconds $(or $(SECONDS),60)
	$(PY) -m tests.fuzz_door --seconds $(or $(SECONDS),60)

sbom: setup ## the bill of materials of the agent's image (CycloneDX): build/sbom/floe.cdx.json
	$(PY) -m deploy.sbom

image: setup ## the agent's image without a daemon, reproducible: build/images/agent.tar, an OCI archive
	$(PY) -m deploy.images

kubernetes: setup ## the chart on a real Kubernetes made here, under load, as root; writes docs/kubernetes.md (ONLY=part of a name, KEEP=1: its rows too)
	KEEP=$(KEEP) $(PY) -m tests.kubernetes $(if $(ONLY),"$(ONLY)")

lock: setup ## resolve pyproject.toml anew into requirements.lock and requirements-agent.lock
	.venv/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --extra dev pyproject.toml -o requirements.lock
	.venv/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --extra traces pyproject.toml -o requirements-agent.lock
	.venv/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url deploy/setup/engines.in -o deploy/setup/engines.lock
	.venv/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url deploy/setup/gateway.in -o deploy/setup/gateway.lock
	.venv/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url deploy/setup/sbom.in -o deploy/setup/sbom.lock
	.venv/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url deploy/setup/site.in -o deploy/setup/site.lock

run: setup ## the main job on real data, to its verdict; BREAK=drop,double,change damages a row each first
	@$(PY) -m deploy.run $(if $(BREAK),--break $(BREAK))

run-cluster: setup ## the same on etcd, MinIO and three agents, one killed and one paused (SECURE=1: TLS, logins and ACLs everywhere)
	@$(PY) -m deploy.run --cluster $(if $(SECURE),--secure) $(if $(BREAK),--break $(BREAK))
