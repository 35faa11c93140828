# README's two commands are `make run` and `make test`. Every target sets up what it needs.
PY := .venv/bin/python
.DEFAULT_GOAL := help

.PHONY: help setup test test-unit lint format lock
help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | expand -t 16

setup: ## the pinned virtual environment under .venv
	@bash deploy/setup/venv.sh

lint: setup ## ruff, mypy strict, import contracts
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports

format: setup ## rewrite the code in the house format
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

test-unit: setup ## the inner loop: seconds, no services
	$(PY) -m pytest tests -m "not services" -q

test: lint ## everything: real etcd, S3 servers, Kafka clients, Spark
	$(PY) -m pytest tests

lock: setup ## resolve pyproject.toml anew into requirements.lock
	.venv/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --extra dev pyproject.toml -o requirements.lock
