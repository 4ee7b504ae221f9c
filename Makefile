# One name per thing a person does here; .ci/run calls the same ones.
GO      ?= go
BIN     ?= bin/rankstorm
GOLANGCI ?= github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 5m

.PHONY: all build static test test-hosts test-rdma kill-matrix lint fmt cover fuzz fuzz-short soak bench clean

all: build

build:
	$(GO) build -o $(BIN) ./cmd/rankstorm

# One file without any shared library.
static:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(BIN) ./cmd/rankstorm

test:
	test/run.sh

# Jobs over several hosts and by real launchers; root.
test-hosts:
	test/hosts.sh

# What needs RDMA, in virtual machines with soft-RoCE; root only to install qemu.
test-rdma:
	test/rdma.sh

# What kills, stops, starves and cuts do to jobs, in every phase: one line per cell. MATRIX=-quick for a dozen cells,
# MATRIX='-run REGEXP' for some, MATRIX='-json FILE' for a record, MATRIX='-random 50 -seed 1' for drawn ones.
kill-matrix: build
	$(GO) run ./test/killmatrix -bin $(BIN) $(MATRIX)

# The linter is a tool of its own module: go run fetches and caches it, go.mod does not know it.
lint:
	$(GO) vet ./...
	$(GO) run $(GOLANGCI) run ./...

fmt:
	gofmt -w $$(git ls-files '*.go')

cover:
	$(GO) test -count=1 -coverprofile=cover.prof -coverpkg=./... ./...
	$(GO) tool cover -func=cover.prof | tail -n 1

# Every decoder: FUZZTIME in all, spread over the targets; 10m before a release.
fuzz:
	test/fuzz.sh $(FUZZTIME)

fuzz-short:
	test/fuzz.sh 1m

# A million connections over rounds, and what is left after each round (minutes).
soak:
	bench/soak.sh
