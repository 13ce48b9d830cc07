# Cofferdam. "make help" lists what there is.
export GOTOOLCHAIN := local
export CGO_ENABLED := 0
GOFLAGS_BUILD :=
PROGRAMS := cofferdam cofferdam-wire cofferdam-server cofferdam-keeper cofferdam-runsc cofferdam-init
AGENT ?= loop
MODEL ?= rehearsal
ONLY ?=
PACKAGES ?= ./...
FUZZTIME ?= 20s
STAGE := build/stage
# What a Mac needs: the command line, and run with its walls.
MAC := ./cmd/cofferdam ./internal/local ./sandbox/seatbelt ./sandbox/hostview
# Two heavy packages at a time would fight for the same few processors.
TEST := go test -json -timeout 50m -p 2

.PHONY: build demo test lint bench attacks crash assets soak fuzz release help

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1 \t/p' $(MAKEFILE_LIST) | expand -t 12

build: ## build all programs into bin/
	@build/ensure
	@build/kernel
	@$(STAGE) programs go build $(GOFLAGS_BUILD) -ldflags '-s -w' -o bin/ $(addprefix ./cmd/,$(PROGRAMS))
	@cd cmd/cofferdam-engine && ../../$(STAGE) engine go build $(GOFLAGS_BUILD) -ldflags '-s -w' -o ../../bin/cofferdam-engine .

demo: build ## try it: one task from request to merge (AGENT=loop, claude, codex …; MODEL=real)
	@bin/cofferdam debug demo --agent $(AGENT) --model $(MODEL)

test: build ## test it: everything, as continuous integration does
	@$(STAGE) vet go vet ./...
	@$(STAGE) vet-mac env GOOS=darwin GOARCH=arm64 go vet $(MAC)
	@cd cmd/cofferdam-engine && ../../$(STAGE) engine-tests go test ./...
	@$(STAGE) tests sh -c '$(TEST) $(PACKAGES) | go run ./build/summary'

lint: ## look for mistakes: vet, gofmt, staticcheck
	@build/lint

attacks: build ## run the attack scripts (ONLY=boundary)
	@$(TEST) -run 'TestAttacks/$(ONLY)' ./internal/scripttest | go run ./build/summary

crash: build ## kill server and engine at every step of a task
	@$(TEST) -run TestCrash ./internal/scripttest | go run ./build/summary

bench: build ## measure, with raw rows in docs/bench/ (ROWS=boxes, ROWS=policy: these alone)
	@build/bench

assets: build ## completions, manual pages and service units into build/out/
	@bin/cofferdam debug reference build/out

soak: build ## long runs: all scripts, those of testdata/soak too, and all agents, many times
	@COFFERDAM_SOAK=1 go test -json -timeout 6h -p 1 -count 10 ./internal/scripttest ./sandbox/gvisor ./sandbox/process ./sandbox/microvm/... ./environment/image ./agent | go run ./build/summary

fuzz: ## fuzz every parser for FUZZTIME each
	@build/fuzz $(FUZZTIME)

release: ## a tarball of programs, assets and licence in build/out/
	@$(MAKE) build assets GOFLAGS_BUILD=-trimpath
	@build/release
