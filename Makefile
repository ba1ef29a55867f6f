# The verbs of this project, one line each; what they do stands in dev/.
.PHONY: help run build test quick lint switches asan fuzz chaos bench paper floor bench-index ablation load load-ui pipeline-demo results clean

help:   ## this list
	@grep -E '^[a-z-]+: *##' Makefile | sed -E 's/: *## */\t/' | expand -t 14

run:    ## set everything up and start the broker on port 1883 with conf/mosquitto.conf
	@dev/run

build:  ## make .venv with the compiled package, and the command .venv/bin/mosq
	@dev/build

test:   ## set everything up and run the tests
	@dev/test

quick:  ## build and run the tests that take seconds
	@dev/quick

lint:   ## ruff, mypy, cython-lint
	@dev/lint

asan:   ## the tests with AddressSanitizer and UndefinedBehaviorSanitizer, in build/asan
	@dev/asan

switches: ## the wire tests with every switch of the index and the pool
	@dev/switches

fuzz:   ## run every fuzz target for SECONDS (30) seconds
	@dev/fuzz $(if $(SECONDS),--seconds $(SECONDS))

chaos:  ## kill the broker under load KILLS (200) times and count what is lost
	@dev/chaos $(if $(KILLS),--kills $(KILLS))

bench:  ## mosq beside other brokers: every scenario, and the vendors' suite (QUICK=1: in two minutes; DIR=where)
	@dev/bench $(if $(QUICK),--quick) $(if $(DIR),--dir "$(DIR)")

paper:  ## the paper's four tests, each optimisation's share, Mosquitto (QUICK=1: in three minutes; DIR=where)
	@dev/paper $(if $(QUICK),--quick) $(if $(DIR),--dir "$(DIR)")

floor:  ## measure against the relay floor, with the instrument outside of this repository
	@dev/floor

bench-index: ## measure the subscription index, the retained tree and the pool by themselves (QUICK=1: in two minutes)
	@dev/bench-index $(if $(QUICK),--quick)

ablation: ## the same load with each optimisation switched off in turn (QUICK=1: in minutes)
	@dev/ablation $(if $(QUICK),--quick)

results: ## write perf/RESULTS.md again, of perf/results; DIRS="build/paper ...": keep these results there first
	@dev/results $(DIRS)

load:   ## load tests with locust against a fresh broker (USERS= SECONDS= SCENARIO= WORKERS= BROKER=mqtt://...)
	@dev/load $(if $(USERS),--users $(USERS)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SCENARIO),--scenario '$(SCENARIO)') \
		$(if $(WORKERS),--workers $(WORKERS)) $(if $(BROKER),--broker '$(BROKER)')

load-ui: ## the same with locust's web page (PORT=)
	@dev/load-ui $(if $(USERS),--users $(USERS)) $(if $(SCENARIO),--scenario '$(SCENARIO)') $(if $(WORKERS),--workers $(WORKERS)) \
		$(if $(BROKER),--broker '$(BROKER)') $(if $(PORT),--port $(PORT))

pipeline-demo: ## broker, 200 devices and the Spark pipeline for a minute, then the report (SECONDS=, DIR=)
	@dev/pipeline-demo $(if $(SECONDS),--seconds $(SECONDS)) $(if $(DIR),--dir "$(DIR)")

clean:  ## remove everything that was built
	@dev/clean
