# Everything that is done with elrun's source. "make help" lists the targets.
#
# Go and make are all that is needed, but for "make race" (a C compiler), "make
# differential" (Open MPI), "make model" (spin, a C compiler), and those tests that make
# network namespaces (root, iproute2, nftables).

.POSIX:

GO       = go
CC       = cc
N        = 4
ARGS     =
FUZZTIME = 10s
BENCH    = .
SEEDS    = 50000
MINUTES  = 20
RUNS     = 500
SEED     = 1
PYTHON   = python3
PEERS    = 1
ROUNDS   = 5
SECONDS  = 40
TIMEOUT  = 60m
# How many packages are tested at the same time. With more the tests of large groups would starve each other.
AT_ONCE  = $$(getconf _NPROCESSORS_ONLN)
# Packages whose tests take longest begin first, so that none of them runs alone at the end. Those that wait for processes alternate
# with those that compute.
PACKAGES = ./testing/e2e ./collective ./testing/netchaos ./trainer ./testing/simnet ./elastic ./transport/p2p ./testing/chaos ./testing/ssh ./testing/slurm ./...
WHEELS    = linux/amd64 linux/arm64 darwin/arm64
PLATFORMS = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

# TIMEOUT bounds the tests of a package. Only a hang should take so long, also under the race
# detector on a loaded machine, where some packages take ten minutes.
#
# Left out of "make race": tests that look at files or compare results, and those that
# start processes for long; they run no code concurrently that others do not run. elrun itself, as tests
# start it, is built without the detector.
RACELESS = /internal/lint$$|/testing/differential$$|/testing/chaos$$|/testing/netchaos$$|/testing/attack$$|/testing/k8s$$|/testing/slurm$$|/testing/ssh$$|/testing/howto$$|/scripts/
# So are all programs of these tests, which therefore bring nothing under the detector. TestSortedByLabel and TestTasks compare long trainings.
UNRACED = ^Test(Balance|Tasks|Bench|BenchTable|Compression|EvaluatorCost|EvaluatorKilled|SortedByLabel|TrafficOfLocalSteps|StatusIsThatOfTheHolders|TwoProgramsInOneCommand|SameTrainingAtOneAndFourPeers|ReadmeProgram|ReadmeProgramWrong|ReadmeSession|PackageDocs|ProgramsDoc|Quickstart|PeersDifferAtTheStart|SlowPeerWhereComputingCounts|SlowPeerIsParked|Top|TopOfLostElrun|Transports|TransportBench|AutoIsNearBest)$$

# Packages that import one of these run tests in bubbles of testing/synctest, and "make race" gives them one processor: with two, two
# threads can run timers of one bubble at the same time, which share one context of the detector, and it crashes (golang/go#78156).
BUBBLES = testing/(synctest|networktest|transporttest)

# Left out of "make check": tests that start processes, and take minutes.
COSTLY = /testing/(e2e|chaos|netchaos|attack|k8s|slurm|ssh|differential)$$
BASE   =

# Tests that kill at many points of a protocol, at a part of them in "make test" and at all in
# "make test-long". The other tests of the package have no long form.
LONG = -run=^TestKill ./trainer

# Rows of matrices that differ little from those in "make test", tests that compare long runs or run for a set time, tests of large
# groups or vectors that repeat those of small ones, and the tests with the most kills: they are left to "make test-long". THINNED has the
# packages with such tests; LONG runs the tests of trainer among them.
THIN    = ^TestMatrixInMemory$$/^n=[678]$$|^TestSelectionOfLongVectors$$/^n=[46789]$$|^Test(Views|Conformance)$$/^(noise|plain|over_quic|unix|local_unix|tls_on_demand|auto_on_demand)$$|^Test(Compression|SortedByLabel|TrafficOfLocalSteps|LocalStepsBetweenFarHosts)$$|^TestBalance$$/^(homogeneous|step)$$|^TestLostHostIsOut$$/.*/.*/^seed_[23]$$|^TestPausedHostStays$$/.*/^seed_[2-5]$$|^Test(AutoIsNearBest|EvaluatorCost|Soak|Schedules|QuietMany|LinesOfMany|ManyPeers|KillOfMany|KillOneOfFiveLarge|KillAtEveryPoint|KillTwoAtManyPoints)$$
THINNED = ./collective ./transport/p2p ./testing/simnet ./testing/e2e ./testing/netchaos ./testing/chaos

.PHONY: help build mnist data run check test test-long test-python test-browser race lint fuzz bench figures otel bench-peers bench-peers-short bench-train bench-python bench-churn planted sim recording balance-report scale model chaos soak schedules differential k8s dist wheel deb clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## /\1	/p' Makefile | while read -r name text; do printf '  make %-13s %s\n' "$$name" "$$text"; done

# The version control stamp is left out: it fails where git does not trust the folder.
build: ## bin/elrun and the examples bin/mnist, bin/hello, bin/ownloop, bin/tensors, bin/evaluator, bin/actors, bin/cocoa, bin/topics
	@mkdir -p bin
	@echo "building bin/elrun and the examples; the first time takes some minutes"
	@CGO_ENABLED=0 $(GO) build -buildvcs=false -o bin/elrun ./cmd/elrun
	@CGO_ENABLED=0 $(GO) build -buildvcs=false -o bin/mnist ./examples/mnist
	@CGO_ENABLED=0 $(GO) build -buildvcs=false -o bin/hello ./examples/hello
	@CGO_ENABLED=0 $(GO) build -buildvcs=false -o bin/ownloop ./examples/ownloop
	@CGO_ENABLED=0 $(GO) build -buildvcs=false -o bin/tensors ./examples/tensors
	@CGO_ENABLED=0 $(GO) build -buildvcs=false -o bin/evaluator ./examples/evaluator
	@CGO_ENABLED=0 $(GO) build -buildvcs=false -o bin/actors ./examples/actors
	@CGO_ENABLED=0 $(GO) build -buildvcs=false -o bin/cocoa ./examples/cocoa
	@CGO_ENABLED=0 $(GO) build -buildvcs=false -o bin/topics ./examples/topics

# All but the examples that have data of their own need only this.
mnist:
	@GO="$(GO)" scripts/mnist.sh data/mnist

data: mnist ## MNIST into data/mnist; and into data, if there is npm, a table for bin/cocoa and a text for bin/topics
	@scripts/npmdata.sh data

# It builds only what it runs.
run: mnist ## train MNIST on 4 local peers (N=4, ARGS for bin/mnist)
	@mkdir -p bin
	@echo "building bin/elrun and bin/mnist; the first time takes some minutes"
	@CGO_ENABLED=0 $(GO) build -buildvcs=false -o bin/ ./cmd/elrun ./examples/mnist
	@bin/elrun -n $(N) bin/mnist --data data/mnist $(ARGS)

check: ## what one runs all day: lint, and the tests of packages that differ from main (BASE=commit)
	@CGO_ENABLED=0 $(GO) run ./scripts/check -base='$(BASE)' -skip='$(COSTLY)' -thin='$(THIN)'

# Lint vets the tests, too.
test: mnist ## all tests but make lint and make test-long, and a summary
	@export GO="$(GO)" CGO_ENABLED=0; failed=0; listed=$$($(GO) list $(PACKAGES)) || exit 1; \
		packages=$$(echo "$$listed" | grep -v '/internal/lint$$') || { echo "make test: PACKAGES names no tests but those of make lint: run make lint" >&2; exit 1; }; \
		(cd scripts/figures && ../gotest.sh -vet=off ./...) || failed=1; \
		(cd cmd/elrun-otel && ../../scripts/gotest.sh -vet=off ./...) || failed=1; \
		scripts/gotest.sh -vet=off -p $(AT_ONCE) -timeout $(TIMEOUT) -skip='$(THIN)' $$packages || failed=1; exit $$failed

test-long: mnist ## the tests that make test thins out, in minutes (chaos, soak and k8s take hours)
	@export GO="$(GO)" CGO_ENABLED=0; failed=0; \
		scripts/gotest.sh -count=1 -vet=off -p $(AT_ONCE) -timeout $(TIMEOUT) -run='$(THIN)' $(THINNED) || failed=1; \
		scripts/gotest.sh -count=1 -vet=off -timeout $(TIMEOUT) $(LONG) -long || failed=1; \
		scripts/gotest.sh -count=1 -vet=off -timeout $(TIMEOUT) -run='^TestSimulation$$' ./launch/internal/job -seeds=100000 || failed=1; \
		scripts/gotest.sh -count=1 -vet=off -timeout $(TIMEOUT) -run='^TestLarge$$' ./event/timeline -long || failed=1; exit $$failed

test-python: ## the tests of the Python package, with PyTorch in an environment outside of the checkout
	@GO="$(GO)" PYTHON="$(PYTHON)" scripts/python.sh

# A module of its own: elrun must not need the library that drives a browser.
test-browser: ## the page of a job in Chromium: what it shows, keyboard, narrow screens, and axe
	@scripts/npmdata.sh data axe
	@cd testing/browser && GO="$(GO)" CGO_ENABLED=0 ../../scripts/gotest.sh -count=1 -timeout $(TIMEOUT) ./...

race: mnist ## the tests under the race detector; needs a C compiler
	@command -v $(CC) >/dev/null || { \
		echo "make race: the race detector needs cgo, and cgo a C compiler: there is no $(CC); install one (Debian: apt-get install gcc libc6-dev) or name it, as in make race CC=clang" >&2; exit 1; }
	@export CC="$(CC)" CGO_ENABLED=1; failed=0; \
		listed=$$($(GO) list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' $(PACKAGES)) || exit 1; \
		listed=$$(echo "$$listed" | awk '$$1 !~ "$(RACELESS)" { print ($$0 ~ "$(BUBBLES)" ? "bubbles" : "others"), $$1 }'); \
		echo "$$listed" | sed -n 's/^bubbles //p' | xargs -r $(GO) test -race -vet=off -cpu=1 -p $(AT_ONCE) -timeout $(TIMEOUT) -skip='$(UNRACED)' || failed=1; \
		echo "$$listed" | sed -n 's/^others //p' | xargs -r $(GO) test -race -vet=off -p $(AT_ONCE) -timeout $(TIMEOUT) -skip='$(UNRACED)' || failed=1; exit $$failed

lint: ## import rules, format, vet, staticcheck, documentation, sizes
	@CGO_ENABLED=0 $(GO) test -count=1 ./internal/lint

fuzz: ## every fuzz target, for FUZZTIME=10s each
	@GO="$(GO)" CGO_ENABLED=0 FUZZTIME="$(FUZZTIME)" scripts/fuzz.sh

bench: ## the benchmarks (BENCH=regexp)
	@CGO_ENABLED=0 $(GO) test -run='^$$' -bench='$(BENCH)' -benchmem $(PACKAGES)

# A module of its own: building elrun must not need what draws. The commands run from here.
figures: ## bin/balance, bin/bench-peers and bin/bench-churn, which draw docs/balancing and docs/benchmarks
	@mkdir -p bin
	@CGO_ENABLED=0 $(GO) -C scripts/figures build -buildvcs=false -o ../../bin/ ./...

# A module of its own, too: elrun must not need the libraries of OpenTelemetry.
otel: ## bin/elrun-otel, which exports a job to OpenTelemetry: docs/metrics.md
	@mkdir -p bin
	@CGO_ENABLED=0 $(GO) -C cmd/elrun-otel build -buildvcs=false -o ../../bin/ .

bench-peers: build figures ## elrun beside Open MPI and Gloo, half an hour: docs/benchmarks.md; as root with several hosts, too
	@scripts/figures/bench-peers/install.sh
	@bin/bench-peers
	@if [ "$$(id -u)" -eq 0 ]; then bin/bench-peers --hosts; \
		else echo "make bench-peers: only root can make network namespaces: no measurements with several hosts"; fi

bench-peers-short: build figures ## the same with few calls on one host; fails only on wrong numbers
	@scripts/figures/bench-peers/install.sh
	@bin/bench-peers --short

bench-train: mnist ## training steps of PEERS=1 beside PyTorch, where PYTHON=python3 has torch: docs/benchmarks.md
	@CGO_ENABLED=0 $(GO) run ./scripts/bench-train --python "$(PYTHON)" --peers $(PEERS)

bench-python: build ## steps of a PyTorch Job beside DistributedDataParallel over Gloo, where PYTHON=python3 has torch: docs/benchmarks.md
	@for model in mlp cnn wide; do ELRUN=$(CURDIR)/bin/elrun PYTHONPATH=python OMP_NUM_THREADS=1 bin/elrun -n 2 $(PYTHON) python/bench/steps.py $$model || exit; done

bench-churn: build mnist figures ## kills and joins beside other elastic systems, ROUNDS=5 of SECONDS=40 each: docs/benchmarks.md
	@scripts/churn.sh --data data/mnist --rounds $(ROUNDS) --seconds $(SECONDS) $(ARGS) docs/benchmarks/churn.json
	@bin/bench-churn docs

planted: ## each small mistake of scripts/planted/testdata, and whether a test finds it
	@PYTHON="$(PYTHON)" $(GO) run ./scripts/planted

sim: ## membership and the life of a job in simulations, SEEDS=50000 of them
	@CGO_ENABLED=0 $(GO) test -count=1 -run=TestSimulate -v ./elastic/member -seeds=$(SEEDS)
	@CGO_ENABLED=0 $(GO) test -count=1 -run=TestSimulation -v ./launch/internal/job -seeds=$(SEEDS)

recording: build mnist ## the picture in the README: a job with a kill and a join; docs/recording.svg
	@$(GO) run ./scripts/recording record docs/recording.txt
	@$(GO) run ./scripts/recording draw docs/recording.txt docs/recording.svg

balance-report: figures ## every balancing policy on every trace of speeds: docs/balancing.md
	@bin/balance docs/balancing

scale: ## how cost grows with the members, to 10,000 in virtual time: docs/scale.md; takes half an hour
	@CGO_ENABLED=0 $(GO) run ./scripts/scale docs

model: ## the formal model of the view change; needs spin and a C compiler
	@CC="$(CC)" elastic/member/model/check.sh

# One package after the other: they load the machine as much as they should themselves.
chaos: ## real processes killed and cut off from each other for long, in up to a few hours
	@CGO_ENABLED=0 $(GO) test -count=1 -p=1 -timeout=5h -v ./testing/chaos ./testing/netchaos -long
	@CGO_ENABLED=0 $(GO) test -count=1 -v -run=Causes ./testing/stalls -seeds=25

soak: ## MINUTES=20 of whatever can happen to processes
	@CGO_ENABLED=0 $(GO) test -count=1 -timeout=24h -v -run=TestSoak ./testing/chaos -minutes=$(MINUTES)

schedules: ## RUNS=500 jobs of real processes to which anything happens at any time, of the seeds from SEED=1 on
	@CGO_ENABLED=0 $(GO) test -count=1 -timeout=5h -v -run=TestSchedules ./testing/chaos -runs=$(RUNS) -seed=$(SEED)

differential: ## the collectives against Open MPI; needs mpicc and mpirun
	@CGO_ENABLED=0 $(GO) test -count=1 -v ./testing/differential

# The control plane is built once, in a quarter of an hour, and kept in the user's cache.
k8s: build mnist ## jobs under the API server and controllers of Kubernetes: docs/hosts.md; as root, needs etcd
	@CGO_ENABLED=0 $(GO) test -count=1 -timeout=5h -v -run=TestCluster ./testing/k8s -long

# The bytes depend on the commit and on the version of Go alone. The version control stamp,
# from which elrun knows its version, is left out where git does not trust the folder.
dist: ## static tarballs for Linux and macOS, amd64 and arm64, in dist/ (PLATFORMS)
	@mkdir -p dist
	@vcs=$$(git rev-parse HEAD >/dev/null 2>&1 && echo true || echo false); for p in $(PLATFORMS); do \
		name=elrun-$$(echo $$p | tr / -); mkdir -p dist/$$name && \
		CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} GOAMD64=v1 GOARM64=v8.0 GOFLAGS= $(GO) build -trimpath -buildvcs=$$vcs -ldflags="-s -w -buildid=" -o dist/$$name/elrun ./cmd/elrun && \
		GO="$(GO)" $(GO) run ./scripts/notices dist/$$name/elrun >dist/$$name/NOTICES && \
		CGO_ENABLED=0 $(GO) run ./scripts/dist dist/$$name.tar.gz $$name dist/$$name/elrun dist/$$name/NOTICES LICENSE README.md scripts/systemd/elrun-join@.service && \
		rm -r dist/$$name && echo dist/$$name.tar.gz || exit 1; \
	done

wheel: ## wheels of the Python package for Linux and macOS, in dist/ (WHEELS)
	@GO="$(GO)" PYTHON="$(PYTHON)" scripts/wheel.sh $(WHEELS)

# nfpm is run at this version and is no dependency: go.mod must not grow by what packs.
deb: ## Debian packages for amd64 and arm64, in dist/ (PLATFORMS)
	@$(MAKE) dist PLATFORMS="$$(echo $(PLATFORMS) | tr ' ' '\n' | grep ^linux/ | tr '\n' ' ')"
	@for p in $(PLATFORMS); do case $$p in linux/*) GO="$(GO)" scripts/deb/build.sh $${p#*/} || exit 1;; esac; done

clean: ## remove what the build made; the data stays
	@rm -rf bin dist
