# The verbs of this project. What each of them does is in the script of the same name in dev/.
.PHONY: help run build build-separate test quick lint clean test-all switches asan fuzz attacks chaos differential conformance bench paper relay bench-index ablation results load load-ui pipeline-demo pipeline-demo-cluster cluster-demo

help:
	@awk -F ': *## *' '/^##@/ { print (n++ ? "\n" : "") substr($$0, 5) } /^[a-z-]+: *##/ { printf "  make %-22s%s\n", $$1, $$2 }' Makefile
	@printf '\nParts of make test-all, with the seconds that each may take on 2 cores\n'
	@dev/test-all --list

##@ Every day
run:    ## set everything up and start the broker on port 1883 with conf/mosquitto.conf
	@dev/run

build:  ## make .venv with the compiled package and the command .venv/bin/mosq
	@dev/build

test:   ## set everything up and run all tests but the repetitions (12 minutes on 2 cores); TESTS=tests/config runs one folder
	@dev/test $(TESTS)

quick:  ## build and run the tests that need no other program, up to the first failure
	@dev/quick

lint:   ## check style, types and language
	@dev/lint

clean:  ## remove everything that was built
	@dev/clean

##@ Working on cext/
build-separate: ## build each module of cext/ by itself: slower at first (5 minutes), 2 s after a small change; `make build` goes back
	@dev/build --separate

##@ More tests
test-all: ## run the tests, then each part of the repetitions (PARTS="fuzz asan": only these parts)
	@dev/test-all $(PARTS)

switches: ## run the wire tests with every switch of the index and the pool
	@dev/switches

asan:   ## run the tests with AddressSanitizer and UndefinedBehaviorSanitizer, in build/asan
	@dev/asan

fuzz:   ## run every fuzz target for SECONDS (30) seconds
	@dev/fuzz $(if $(SECONDS),--seconds $(SECONDS))

attacks: ## attack mosq and Mosquitto, and measure the waits of other clients and the memory (ONLY="half tls": only these)
	@dev/attacks $(foreach name,$(ONLY),--only $(name))

chaos:  ## kill the broker under load KILLS (200) times and count what is lost
	@dev/chaos $(if $(KILLS),--kills $(KILLS))

conformance: ## run Mosquitto's own broker tests with one process, with compat and with two workers, and write docs/conformance.md (SUITE=folder of a built Mosquitto; RUNNER=)
	@SUITE="$(SUITE)" $(if $(RUNNER),RUNNER="$(RUNNER)") dev/conformance

differential: ## compare random sessions with Debian's Mosquitto for SECONDS (60), or with the Mosquitto at the path MOSQUITTO
	@dev/differential $(if $(SECONDS),--seconds $(SECONDS)) $(if $(MOSQUITTO),--mosquitto '$(MOSQUITTO)')

##@ Measuring
bench:  ## compare mosq with other brokers: every scenario, and the vendors' suite (QUICK=1: two minutes; DIR=)
	@dev/bench $(if $(QUICK),--quick) $(if $(DIR),--dir "$(DIR)")

paper:  ## run the paper's four tests with each optimisation and with Mosquitto (QUICK=1: three minutes; DIR=)
	@dev/paper $(if $(QUICK),--quick) $(if $(DIR),--dir "$(DIR)")

relay:  ## compare with the relay, the least that a broker can cost: the table of README.md (five minutes)
	@dev/relay

bench-index: ## measure the subscription index, the retained tree and the pool alone (QUICK=1: two minutes)
	@dev/bench-index $(if $(QUICK),--quick)

ablation: ## run the same load with each optimisation switched off in turn (QUICK=1: minutes)
	@dev/ablation $(if $(QUICK),--quick)

results: ## write perf/RESULTS.md again from perf/results (DIRS="build/paper ...": add these results first)
	@dev/results $(DIRS)

##@ Load
load:   ## run load tests with locust against a fresh broker (USERS= SECONDS= SCENARIO= WORKERS= BROKER=mqtt://...)
	@dev/load $(if $(USERS),--users $(USERS)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SCENARIO),--scenario '$(SCENARIO)') \
		$(if $(WORKERS),--workers $(WORKERS)) $(if $(BROKER),--broker '$(BROKER)')

load-ui: ## run load tests with locust's web page (PORT=)
	@dev/load-ui $(if $(USERS),--users $(USERS)) $(if $(SCENARIO),--scenario '$(SCENARIO)') $(if $(WORKERS),--workers $(WORKERS)) \
		$(if $(BROKER),--broker '$(BROKER)') $(if $(PORT),--port $(PORT))

##@ Pipeline
pipeline-demo: ## run a broker, 200 devices and the Spark pipeline for a minute, then write the report (SECONDS= DIR= MASTER= DATA=weather)
	@dev/pipeline-demo $(if $(SECONDS),--seconds $(SECONDS)) $(if $(DIR),--dir "$(DIR)") $(if $(DATA),--data "$(DATA)") $(if $(MASTER),--master "$(MASTER)")
pipeline-demo-cluster: ## as pipeline-demo, on a standalone Spark cluster, a master and two workers that it starts here (SECONDS= DIR=)
	@dev/pipeline-demo --cluster $(if $(SECONDS),--seconds $(SECONDS)) $(if $(DIR),--dir "$(DIR)")

##@ Cluster
cluster-demo: ## run three nodes, three servers of Redis, Sentinels and HAProxy here, kill a node every ten seconds, and account for each message (SECONDS=)
	@dev/cluster-demo $(if $(SECONDS),--seconds $(SECONDS))
