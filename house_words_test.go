package cofferdam_test

import (
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"cofferdam"
)

// TestSpecification: every number in docs/SPECIFICATION.md names the test that
// holds it, and that test exists.
func TestSpecification(t *testing.T) {
	text, err := os.ReadFile("docs/SPECIFICATION.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testNames(t)
	rows := 0
	for _, l := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(l, "| ") || strings.HasPrefix(l, "| what ") || strings.HasPrefix(l, "|--") || strings.HasPrefix(l, "|---") {
			continue
		}
		cells := strings.Split(strings.Trim(l, "| "), "|")
		held := strings.TrimSpace(cells[len(cells)-1])
		rows++
		if held == "not measured here" {
			continue
		}
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(held, -1) {
			if !tests[name[1]] {
				t.Errorf("SPECIFICATION.md names the test %s, which does not exist: %s", name[1], l)
			}
		}
		if !strings.Contains(held, "`") {
			t.Errorf("SPECIFICATION.md: no test is named for: %s", l)
		}
	}
	if rows < 10 {
		t.Errorf("SPECIFICATION.md has only %d rows that could be read", rows)
	}
}

// TestSpecifiedNumbers: a number that SPECIFICATION.md names is the one in the
// code. The tests beside it try the bound by its name, whatever its number is.
func TestSpecifiedNumbers(t *testing.T) {
	text, err := os.ReadFile("docs/SPECIFICATION.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []struct{ row, says, file, name string }{
		{"default limits", "memory 4 GiB", "sandbox/sandbox.go", "Memory"},
		{"default limits", "workspace 4 GiB", "sandbox/sandbox.go", "Disk"},
		{"default limits", "/tmp and home 1 GiB", "sandbox/sandbox.go", "Temp"},
		{"default limits", "2 processors", "sandbox/sandbox.go", "CPU"},
		{"default limits", "512 processes", "sandbox/sandbox.go", "PIDs"},
		{"default limits", "8,192 open files", "sandbox/sandbox.go", "OpenFiles"},
		{"output", "64 MiB per stream", "sandbox/guest/host.go", "StreamCap"},
		{"output", "256 MiB per box", "sandbox/guest/host.go", "BoxCap"},
		{"commands of one box", "256 at a time", "sandbox/guest/host.go", "MaxRunning"},
		{"commands of one box", "16,384 in all", "sandbox/guest/host.go", "MaxCommands"},
		{"definition of a repository", "64 KiB", "environment/recipe.go", "MaxRecipe"},
		{"entries of each list of it", "64", "environment/recipe.go", "maxSteps"},
		{"time of a setup", "15 minutes", "environment/recipe.go", "DefaultTimeout"},
		{"time of a setup", "59 minutes", "environment/recipe.go", "MaxTimeout"},
		{"age of what is kept", "7 days", "environment/recipe.go", "DefaultAge"},
		{"age of what is kept", "30 days", "environment/recipe.go", "MaxAge"},
		{"results of setups that are kept", "32", "environment/environment.go", "MaxImages"},
		{"why there was none", "256", "environment/entry.go", "maxGone"},
		{"unpacked image", "16 GiB", "environment/image/unpack.go", "MaxBytes"},
		{"unpacked image", "1,048,576 entries", "environment/image/unpack.go", "MaxEntries"},
		{"unpacked image", "256 layers", "environment/image/unpack.go", "MaxLayers"},
		{"a secret of setups", "4,096 bytes", "internal/daemon/setup_secret.go", "maxSetupSecret"},
		{"all images together", "64 GiB", "environment/image/room.go", "DefaultMaxBytes"},
		{"an image in use", "24 hours", "environment/image/image.go", "InUse"},
		{"Debian's packages", "30 minutes", "environment/image/debian.go", "debianTime"},
		{"idle timeout", "900 s", "cofferdam.go", "DefaultIdle"},
		{"idle timeout", "60 to", "cofferdam.go", "MinIdle"},
		{"idle timeout", "28,800 s", "cofferdam.go", "MaxIdle"},
		{"maximum lifetime", "28,800 s", "cofferdam.go", "DefaultLifetime"},
		{"maximum lifetime", "1,209,600 s", "cofferdam.go", "MaxLifetime"},
		{"before a box is suspended, or a session ends", "1 minute", "session/rest.go", "mostWarning"},
		{"a box that does not come back", "3 times", "session/rest.go", "maxResumes"},
		{"`task wait` of a task that ended", "1 minute", "internal/service/task.go", "sealGrace"},
		{"the end of a lifetime", "15 s", "session/lifetime.go", "graceEnd"},
		{"sessions with a box that runs", "8 at a time", "cofferdam.go", "DefaultParallel"},
		{"sessions with a box that runs", "to 128", "internal/config/config.go", "maxParallel"},
		{"what runs in a box", "1,024 commands", "sandbox/guest/jobs.go", "MaxCounts"},
		{"what runs in a box", "16 of", "internal/cli/session.go", "shownJobs"},
		{"what runs in a box", "2 seconds", "session/life.go", "countPatience"},
		{"coming to rest", "30 seconds", "sandbox/guest/hold.go", "quietPatience"},
		{"snapshots of one driver", "64", "sandbox/snapshot/snapshot.go", "MaxSnapshots"},
		{"snapshots of one driver", "64 GiB", "sandbox/snapshot/snapshot.go", "MaxBytes"},
		{"snapshots of one driver", "1 GiB", "sandbox/snapshot/snapshot.go", "KeepFree"},
		{"programs of one box", "1 minute", "sandbox/gvisor/create.go", "startPatience"},
		{"boxes that find no memory", "1 MiB", "sandbox/cgroup/bound.go", "nearLimit"},
		{"the socket by which a gvisor box reads its network", "5 seconds", "sandbox/gvisor/packet.go", "packetPatience"},
		{"the socket by which a gvisor box reads its network", "2 seconds", "sandbox/gvisor/packet.go", "openPatience"},
		{"what is said of a checkpoint", "comment of 200 bytes", "sandbox/checkpoint.go", "MaxComment"},
		{"what is said of a checkpoint", "asked in 200 bytes", "sandbox/checkpoint.go", "MaxActor"},
		{"what is said of a checkpoint", "16 KiB", "sandbox/checkpoint.go", "MaxNote"},
		{"checkpoints of one session", "10, automatic", "sandbox/checkpoint.go", "MaxOfSession"},
		{"differences of two workspaces", "10,000 paths", "sandbox/checkpoint.go", "MaxDifferences"},
		{"differences of two workspaces", "2 MiB", "sandbox/checkpoint.go", "MaxPathBytes"},
		{"comparing them", "1,048,576 files", "sandbox/difference/doc.go", "MaxEntries"},
		{"comparing them", "1,000 deep", "sandbox/difference/doc.go", "MaxDepth"},
		{"comparing them", "1,048,576 pieces", "sandbox/difference/extents.go", "MaxExtents"},
		{"comparing them", "5 minutes", "sandbox/difference/doc.go", "MaxTime"},
		{"users of its git processes", "10,000 of", "internal/repo/repo.go", "FirstOfUser"},
		{"calls of the server before", "30 seconds", "sandbox/keeper/lease.go", "settleTime"},
		{"a keeper that does not answer", "10 seconds", "sandbox/keeper/server.go", "firstWords"},
		{"the lock of a keeper that was killed", "10 seconds", "cmd/cofferdam-keeper/keep.go", "letGoTime"},
		{"a keeper that begins or ends", "30 seconds", "sandbox/keeper/gather.go", "endTime"},
		{"a call of a server that lost its claim", "1 second", "sandbox/keeper/lease.go", "fencedTime"},
		{"a call that needs a keeper which has ended", "20 seconds", "sandbox/keeper/revive.go", "reviveWait"},
		{"starts of a keeper that goes on ending", "1 minute", "sandbox/keeper/revive.go", "settledLife"},
		{"starts of a keeper that goes on ending", "after 2 seconds", "sandbox/keeper/revive.go", "firstPause"},
		{"starts of a keeper that goes on ending", "30 seconds at most", "sandbox/keeper/revive.go", "longestPause"},
		{"`cofferdam status`", "2 seconds", "internal/daemon/keepers.go", "statusWait"},
		{"keepers of one installation", "4, of", "sandbox/keeper/set.go", "MaxKeepers"},
		{"boxes made ahead", "2 of each kind", "cmd/cofferdam-keeper/main.go", "defaultPool"},
		{"boxes made ahead", "16 at most", "sandbox/gvisor/pool.go", "MaxPool"},
		{"boxes made ahead", "8 kinds", "sandbox/gvisor/pool.go", "maxKinds"},
		{"boxes made ahead", "15 minutes", "sandbox/gvisor/pool.go", "keepKind"},
		{"boxes made ahead", "10 percent", "sandbox/gvisor/pool.go", "minFreePercent"},
		{"a pool after a claim", "200 milliseconds", "sandbox/gvisor/pool.go", "refillAfter"},
		{"a pool after a claim", "50 milliseconds", "sandbox/gvisor/pool.go", "shrinkTime"},
		{"a pool after a claim", "10 seconds", "sandbox/gvisor/pool.go", "warmTime"},
		{"the first command of a box that was made ahead", "64 KiB", "sandbox/guest/message.go", "StandbyRoom"},
		{"the first command of a box that was made ahead", "30 seconds", "sandbox/gvisor/name.go", "nameTime"},
		{"names that the kernel of a gvisor box keeps", "16,384", "sandbox/gvisor/runsc.go", "maxNames"},
		{"names that the kernel of a gvisor box keeps", "1,000", "sandbox/gvisor/runsc.go", "minNames"},
		{"names that the kernel of a gvisor box keeps", "2,000", "sandbox/gvisor/runsc.go", "spareDescriptors"},
		{"empty images of workspaces", "16 sizes", "sandbox/gvisor/template.go", "maxTemplates"},
		{"limits of a process box", "64 processes", "sandbox/process/limits.go", "initThreads"},
		{"watched memory", "every 100 ms", "sandbox/watch/memory.go", "memoryPeriod"},
		{"watched memory", "every 10 ms", "sandbox/watch/memory.go", "crowdedPeriod"},
		{"a host without memory", "is 500", "sandbox/process/watch.go", "firstToGo"},
		{"processes of a watched box of tier process", "at least 64", "sandbox/process/limits.go", "initThreads"},
		{"user namespace of a process box", "16,384 groups", "sandbox/guest/host.go", "MaxCommands"},
		{"user namespace of a process box", "40,000, one", "sandbox/guest/message.go", "FewBase"},
		{"process boxes of one host", "256", "sandbox/process/driver.go", "maxBoxes"},
		{"smallest memory of a process box", "32 MiB", "sandbox/process/limits.go", "minMemory"},
		{"files given to a box", "64, of", "sandbox/spec.go", "MaxFiles"},
		{"files given to a box", "4 MiB", "sandbox/spec.go", "MaxFileBytes"},
		{"files given to a one-off box", "8 more", "sandbox/process/oneoff.go", "maxWritable"},
		{"machines of one host", "64", "sandbox/microvm/driver.go", "maxBoxes"},
		{"machines of one host", "8 roots", "sandbox/microvm/image.go", "maxRoots"},
		{"what an emulator keeps of code that it has translated", "128 MiB", "sandbox/microvm/qemu/qemu.go", "translated"},
		{"machines of a user", "1 GiB", "sandbox/microvm/qemu/qemu.go", "ownMemory"},
		{"machines of a user", "256 threads", "sandbox/microvm/qemu/qemu.go", "ownTasks"},
		{"users of monitors", "60,000", "sandbox/microvm/driver.go", "firstOfUser"},
		{"the host's programs in a machine", "1,000 files", "sandbox/microvm/image.go", "maxClosed"},
		{"smallest memory of a machine", "192 MiB", "sandbox/microvm/spec.go", "minMemory"},
		{"what such a monitor answers", "20 seconds", "sandbox/microvm/vmm/api.go", "callPatience"},
		{"what such a monitor answers", "2 minutes", "sandbox/microvm/vmm/api.go", "MemoryPatience"},
		{"what such a monitor answers", "16 KiB", "sandbox/microvm/vmm/api.go", "maxHead"},
		{"what such a monitor answers", "1 MiB", "sandbox/microvm/vmm/api.go", "maxBody"},
		{"what such a monitor answers", "30 seconds", "sandbox/microvm/vmm/api.go", "watchEvery"},
		{"what such a monitor answers", "300 bytes", "sandbox/microvm/vmm/api.go", "maxTold"},
		{"what such a machine may move", "512 MiB", "sandbox/microvm/vmm/request.go", "DiskRate"},
		{"what such a machine may move", "256 MiB", "sandbox/microvm/vmm/request.go", "NetworkRate"},
		{"what such a machine may move", "64 KiB", "sandbox/microvm/firecracker/bodies.go", "consoleRate"},
		{"what such a machine may move", "16 KiB", "sandbox/microvm/link.go", "consoleSize"},
		{"descriptors of Firecracker", "256", "sandbox/microvm/firecracker/jail.go", "openFiles"},
		{"who reads an image", "2 GiB", "sandbox/microvm/image.go", "rootMemory"},
		{"who reads an image", "10 minutes", "sandbox/microvm/image.go", "rootPatience"},
		{"which monitor", "16 or newer", "sandbox/microvm/firecracker/firecracker.go", "leastMinor"},
		{"which monitor", "53 or newer", "sandbox/microvm/cloudhypervisor/cloudhypervisor.go", "leastMajor"},
		{"how long a workspace is kept", "14 days", "workspace/workspace.go", "DefaultKeep"},
		{"notice of a removal", "24 hours", "workspace/workspace.go", "Notice"},
		{"an export", "90 days", "workspace/workspace.go", "DefaultBundles"},
		{"an export", "6 hours", "workspace/workspace.go", "retryPause"},
		{"exports of one workspace", "15 before it", "workspace/bundle.go", "maxEarlier"},
		{"what a box may say of a workspace", "20 minutes", "workspace/export.go", "exportTimeout"},
		{"what a box may say of a workspace", "1,000 refs", "internal/repo/bundle.go", "MaxBundleRefs"},
		{"commands that a restore ended", "64 are", "session/restore.go", "maxEndedTold"},
		{"paths of a difference on a terminal", "first 200", "internal/cli/sandbox.go", "shownChanges"},
		{"a watched folder is counted", "every 2 seconds", "sandbox/watch/folder.go", "folderBusy"},
		{"a watched folder is counted", "every 30 seconds", "sandbox/watch/folder.go", "folderIdle"},
		{"a watched folder is counted", "every 100 milliseconds", "sandbox/watch/folder.go", "folderTick"},
		{"a watched folder that was moved away from where it is counted", "within 2 seconds", "sandbox/watch/sure.go", "stillPatience"},
		{"a watched folder that was moved away from where it is counted", "in 3 counts", "sandbox/watch/sure.go", "stillTries"},
		{"what may not be in a watched folder", "256 folders", "sandbox/watch/measure.go", "MaxDepth"},
		{"removing what a box wrote", "64 folders", "sandbox/watch/remove.go", "removeDepth"},
		{"a watched folder over its size", "1 GiB", "sandbox/volume/folder.go", "Grace"},
		{"a watched folder over its size", "4 MiB", "sandbox/watch/folder.go", "Slack"},
		{"a full disk under a watched folder", "4 KiB", "sandbox/volume/about.go", "noteSize"},
		{"workspaces of one tier on one host", "4,096", "sandbox/volume/volume.go", "MaxWorkspaces"},
		{"names with an address on one wire", "4,096", "gateway/wire/wire.go", "MaxNames"},
		{"connections of one wire at a time", "256", "gateway/wire/wire.go", "MaxConnections"},
		{"a document", "10,000 rules", "policy/rule.go", "maxRules"},
		{"a document", "1,000 tests", "policy/document.go", "maxTests"},
		{"a document", "1 MiB", "policy/document.go", "maxDocument"},
		{"headers that name another method or path", "4 of each kind", "gateway/egress/override.go", "maxOverrides"},
		{"Cedar text of a document", "256 KiB", "policy/depth.go", "maxCedar"},
		{"Cedar text of a document", "64 deep", "policy/depth.go", "maxNesting"},
		{"versions of a document", "32 proposals", "internal/store/policy.go", "maxProposals"},
		{"versions of a document", "10,000 versions", "internal/store/policy.go", "maxVersions"},
		{"versions of a document", "1,000 in", "internal/store/policy.go", "maxPolicies"},
		{"versions of a document", "4,096 bytes", "internal/service/policy.go", "maxWhy"},
		{"what is read of traces to suggest or replay", "500,000 events", "internal/service/policy_try.go", "maxReplayed"},
		{"what is read of traces to suggest or replay", "100 sessions", "internal/service/policy_try.go", "maxTried"},
		{"what is read of traces to suggest or replay", "256 hosts", "policy/analysis/suggest.go", "maxSuggested"},
		{"what is read of traces to suggest or replay", "16 paths", "policy/analysis/suggest.go", "maxPaths"},
		{"a question", "300 seconds", "approval/desk.go", "DefaultWait"},
		{"a question", "50 of", "approval/desk.go", "MaxTask"},
		{"a question", "20 of", "approval/desk.go", "MaxMinute"},
		{"a question", "60 seconds", "approval/desk.go", "Quiet"},
		{"a request that is asked about", "1 MiB", "gateway/egress/show.go", "maxAsked"},
		{"a request that is asked about", "64 KiB", "question.go", "MaxQuestionBytes"},
		{"the first thing to prove by", "5 minutes", "identity/enroll.go", "FreshFor"},
		{"the first thing to prove by", "16 bytes", "identity/enroll.go", "minSecret"},
		{"a stream whose caller's token or role has ended", "1 second", "internal/api/route.go", "standing"},
		{"a token", "30 days", "identity/token.go", "DefaultLife"},
		{"a token", "365 days", "identity/token.go", "MaxLife"},
		{"a token", "64 verbs", "identity/token.go", "maxVerbs"},
		{"a login", "12 hours", "identity/token.go", "LoginLife"},
		{"an invitation", "24 hours", "identity/member.go", "InvitationLife"},
		{"a proof", "60 seconds", "identity/factor.go", "PresentFor"},
		{"a proof", "5 wrong", "identity/factor.go", "MaxWrong"},
		{"a proof", "15 minutes", "identity/factor.go", "Lock"},
		{"a password", "12 to", "identity/factor.go", "MinPassword"},
		{"a password", "1,024 bytes", "identity/factor.go", "MaxPassword"},
		{"a password", "65,536 blocks", "identity/factor.go", "argonMemory"},
		{"a password", "3 passes", "identity/factor.go", "argonTime"},
		{"a password", "2 at a time", "identity/directory.go", "hashers"},
		{"signing in at a provider", "10 minutes", "identity/oidc.go", "FlowLife"},
		{"signing in at a provider", "64 at a time", "identity/oidc.go", "maxFlows"},
		{"signing in at a provider", "30 seconds", "identity/oidc.go", "provider"},
		{"a passkey", "5 minutes", "identity/passkey.go", "PasskeyLife"},
		{"a passkey", "1,024 at", "identity/passkey.go", "maxChallenge"},
		{"a session's token", "5 minutes", "identity/workload.go", "WorkloadLife"},
		{"a session's token", "256 bytes", "gateway/workload/workload.go", "maxAudience"},
		{"what an answer opens", "86,400 seconds", "approval/desk.go", "MaxOpen"},
		{"what an answer opens", "100,000 acts", "approval/desk.go", "MaxUses"},
		{"acts of one session", "200,000", "gateway/handle.go", "MaxActs"},
		{"a request's method", "32 bytes", "gateway/serve.go", "maxMethod"},
		{"a hostile answer", "1 MiB", "gateway/egress/http.go", "maxResponseHeader"},
		{"TLS handshake with a host outside", "15 s", "gateway/egress/upstream.go", "upstreamTimeout"},
		{"a client that does not trust the gateways", "within 2 s", "gateway/egress/terminate.go", "distrustTimeout"},
		{"largest request", "32 MiB", "gateway/model/model.go", "MaxRequest"},
		{"nesting and values of a request", "200 deep", "gateway/model/request_json.go", "maxDepth"},
		{"nesting and values of a request", "262,144 values", "gateway/model/request_json.go", "maxValues"},
		{"model ids of a registration", "100 allowed", "internal/service/model_check.go", "maxModelIDs"},
		{"model ids of a registration", "256 bytes", "internal/service/model_check.go", "maxModelID"},
		{"model ids of a registration", "256 bytes", "gateway/model/request.go", "maxModelID"},
		{"model ids of a registration", "8 fallbacks", "internal/service/model_check.go", "maxFallbacks"},
		{"tries of one registration", "3, none", "gateway/model/retry.go", "maxTries"},
		{"tries of one registration", "60 seconds", "gateway/model/retry.go", "tryWindow"},
		{"tries of one registration", "20 seconds", "gateway/model/retry.go", "longestPause"},
		{"what is held of a stream before its first content", "2 seconds", "gateway/model/retry_hold.go", "holdTime"},
		{"a stream", "15 minutes do", "gateway/model/retry_hold.go", "maxSilence"},
		{"text that is kept", "1 MiB", "gateway/model/keep.go", "maxKept"},
		{"calls of one session at once", "32, and", "gateway/model/seat.go", "maxCalls"},
		{"calls of one session at once", "8 with", "gateway/model/seat.go", "maxLarge"},
		{"calls of one session at once", "4 requests", "gateway/model/seat.go", "maxReaders"},
		{"calls of one session at once", "64 KiB", "gateway/model/seat.go", "readAlone"},
		{"calls of one session at once", "1 MiB", "gateway/model/seat.go", "largeRequest"},
		{"calls of one session at once", "1 MiB", "gateway/model/seat.go", "largeRequest"},
		{"limits of a task", "1,000 to", "cofferdam.go", "MinTokens"},
		{"limits of a task", "1,000,000,000 tokens", "cofferdam.go", "MaxTokens"},
		{"limits of a task", "10,000 to", "cofferdam.go", "MinCost"},
		{"limits of a task", "100,000,000 microdollars", "cofferdam.go", "MaxCost"},
		{"limits of a task", "500 model calls", "cofferdam.go", "MaxCalls"},
		{"a notice to the operator's webhook", "5 times", "approval/webhook.go", "noticeTries"},
		{"a notice to the operator's webhook", "10 seconds", "approval/webhook.go", "noticeTimeout"},
		{"a notice to the operator's webhook", "256 wait", "approval/webhook.go", "maxNotices"},
		{"its paths and hosts", "200 paths", "contract.go", "MaxContractPaths"},
		{"its paths and hosts", "200 hosts", "contract.go", "MaxContractHosts"},
		{"its tools", "200, of agent", "contract.go", "MaxContractTools"},
		{"its paths and hosts", "1,024 bytes", "contract.go", "MaxContractPath"},
		{"other limits of a task", "1,099,511,627,776 bytes", "budget.go", "MaxEgress"},
		{"other limits of a task", "50 questions", "budget.go", "MaxApprovals"},
		{"a warning", "80 percent", "budget/budget.go", "WarnAt"},
		{"a guess", "3 bytes a token", "gateway/model/spend.go", "bytesPerToken"},
		{"an answer in one piece", "131,072 tokens", "gateway/model/spend.go", "unsaidOutput"},
		{"counts of tokens", "4 MiB", "gateway/model/usage.go", "maxPiece"},
		{"prices", "1,000 dollars", "price.go", "MaxPrice"},
		{"largest push", "2 GiB", "internal/repo/repo.go", "MaxPush"},
		{"requests of one session served at once", "4", "gateway/git/gateway.go", "maxExchanges"},
		{"what a fetch asks for", "16 MiB", "gateway/git/http.go", "maxWants"},
		{"largest event", "1 MiB", "trace/event.go", "MaxEvent"},
		{"sockets and descriptors of the host", "16 folders", "sandbox/process/hidden.go", "maxDeaf"},
		{"`--copy`", "256 folders", "internal/local/copy_linux.go", "maxCopyDepth"},
		{"`--copy`", "8 tries", "internal/local/copy_linux.go", "maxCopyTries"},
		{"its trace", "the last 200", "internal/local/record.go", "keptTraces"},
		{"its trace", "60 seconds", "internal/local/record.go", "settled"},
		{"its trace", "8 others", "internal/local/leftover.go", "maxOthers"},
		{"on a Mac", "1,024 paths", "sandbox/seatbelt/profile.go", "MaxPaths"},
		{"the proxy of a box without a network device", "256 connections", "gateway/proxy/proxy.go", "MaxConnections"},
		{"the program of its network", "16 MiB", "internal/local/network/network.go", "maxFrame"},
		{"the program of its network", "15 seconds", "internal/local/network/program_linux.go", "endPatience"},
		{"the program of its network", "4 MiB", "internal/local/gateways/main.go", "maxRoots"},
		{"hosts and addresses that were refused", "16 are", "internal/local/refused.go", "maxRefused"},
		{"a network that ends before its run", "4,096 connections", "internal/local/network/outage_linux.go", "maxConnections"},
		{"a network that ends before its run", "4 MiB", "internal/local/network/outage_linux.go", "maxTable"},
		{"a network that ends before its run", "1 second apart", "internal/local/network/guard_linux.go", "frozenTick"},
		{"what a run may put on record", "200,000 events", "internal/local/bound.go", "maxEvents"},
		{"what a run may put on record", "128 MiB", "internal/local/bound.go", "maxRecord"},
		{"hosts and addresses that were refused", "3 named", "internal/cli/run.go", "shownHosts"},
		{"text of a task", "256 KiB", "task/request.go", "MaxText"},
		{"text of a task", "64 KiB", "task/request.go", "MaxCommand"},
		{"checks of a task", "at most 32", "task/request.go", "MaxChecks"},
		{"a message of a person", "30 seconds", "session/attend.go", "DefaultPatience"},
		{"an agent killed by a signal from inside its box", "at most 3 times", "session/turn.go", "maxInterrupted"},
		{"a model that is gone", "5 failed calls", "session/provider.go", "goneCalls"},
		{"a model that is gone", "2 minutes", "session/provider.go", "goneAfter"},
		{"a model that is gone", "3 refusals", "session/provider.go", "keyRefusals"},
		{"workflows started at a time", "8, those", "task/flow/flow.go", "maxStarts"},
		{"an engine that does not start", "20 starts", "internal/engine/engine.go", "giveUpAfter"},
		{"messages of one task", "64, over", "task/message.go", "MaxMessages"},
		{"messages of one task", "at most 64 KiB", "task/message.go", "MaxMessage"},
		{"what an agent is told", "at most 1 MiB", "agent/agent.go", "MaxPrompt"},
		{"what is read from an agent", "4 KiB", "agent/reader.go", "MaxText"},
		{"what is read from an agent", "a line 1 MiB", "agent/reader.go", "MaxLine"},
		{"what is read from an agent", "5,000 events", "agent/reader.go", "MaxEvents"},
		{"what opencode takes for the model's window", "128,000 tokens", "agent/adapters/opencode.toml", `context"`},
		{"what opencode takes for the model's window", "16,000 of them", "agent/adapters/opencode.toml", `output"`},
		{"what Gemini CLI does with a failing model", "4 times", "agent/adapters/gemini.toml", `maxAttempts"`},
		{"what Gemini CLI says in pieces", "16 KiB", "agent/gemini.go", "maxSaying"},
		{"agents of the operator", "64 files", "agent/set.go", "maxAdapters"},
		{"agents of the operator", "256 KiB", "agent/set.go", "maxAdapterFile"},
		{"turns", "100 answers", "agent/loop/run.go", "DefaultTurns"},
		{"turns", "up to 500", "agent/loop/run.go", "MaxTurns"},
		{"tools", "16 calls", "agent/loop/dialect.go", "MaxCalls"},
		{"tools", "32 KiB", "agent/loop/tool.go", "maxShown"},
		{"tools", "1 MiB", "agent/loop/tool.go", "MaxOutput"},
		{"its conversation", "8 MiB", "internal/store/conversation.go", "MaxEntry"},
		{"its conversation", "20,000", "internal/store/conversation.go", "MaxEntries"},
		{"its conversation", "256 MiB", "internal/store/conversation.go", "MaxConversation"},
		{"the model's window", "200,000 tokens", "agent/loop/run.go", "defaultWindow"},
		{"the model's window", "4 exchanges", "agent/loop/window.go", "keptExchanges"},
		{"the same call with the same result", "3 times", "agent/loop/run.go", "warnAt"},
		{"the same call with the same result", "5", "agent/loop/run.go", "stopAt"},
		{"an answer that does not come or cannot be read", "4 tries", "agent/loop/ask.go", "maxTries"},
		{"attempts of one task", "100", "task/request.go", "MaxAttempt"},
		{"a rehearsal", "scripts up to 1 MiB", "agent/rehearsal/rehearsal.go", "maxScript"},
		{"a rehearsal", "100 answers", "agent/rehearsal/rehearsal.go", "maxTurns"},
		{"a rehearsal", "32 MiB", "agent/rehearsal/rehearsal.go", "maxHuge"},
		{"a demo with a real model", "60 calls", "internal/demo/model.go", "Calls"},
		{"a demo with a real model", "2,000,000 tokens", "internal/demo/model.go", "Tokens"},
		{"a recording of a provider", "64 MiB", "agent/rehearsal/record.go", "maxAnswer"},
		{"a recording of a provider", "1,000 answers", "agent/rehearsal/record.go", "maxRecorded"},
		{"operator file", "at most 1 MiB", "internal/config/config.go", "maxFile"},
		{"operator file", "first 16 faults", "internal/config/file.go", "maxFaults"},
		{"a table on a terminal", "8 characters", "internal/cli/terminal.go", "narrowest"},
	} {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(n.row) + ` \| (.*?) \| [^|]*`).FindStringSubmatch(string(text))
		if row == nil || !strings.Contains(row[1], n.says) || !strings.Contains(row[0], "`TestSpecifiedNumbers`") {
			t.Errorf("SPECIFICATION.md: the row %q does not say %q, or that this test holds it", n.row, n.says)
			continue
		}
		if got, want := constantIn(t, n.file, n.name), numberIn(n.says); got != want {
			t.Errorf("%s: %s is %s, SPECIFICATION.md says %q", n.file, n.name, got, n.says)
		}
	}
}

// constantIn evaluates "name = expression" or "name: expression" in a file.
func constantIn(t *testing.T, file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`\b` + name + `(?:\s*=|:)\s*([0-9_]+(?:\s*<<\s*[0-9]+)?)`).FindStringSubmatch(string(text))
	if m == nil {
		return "not there"
	}
	v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, m[1])
	if err != nil {
		t.Fatal(err)
	}
	return v.Value.ExactString()
}

// numberIn reads the number of such as "at most 1 MiB".
func numberIn(says string) string {
	m := regexp.MustCompile(`([0-9][0-9,]*)(?: ([KMG]iB))?`).FindStringSubmatch(says)
	n, err := strconv.ParseInt(strings.ReplaceAll(m[1], ",", ""), 10, 64)
	if err != nil {
		return err.Error()
	}
	return strconv.FormatInt(n<<map[string]int{"": 0, "KiB": 10, "MiB": 20, "GiB": 30}[m[2]], 10)
}

// testNames returns every Go test, benchmark and fuzz target, and every script
// as its path below testdata.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	fn := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	for _, f := range tracked(t, "*.go", "*.txtar") {
		if strings.HasSuffix(f, ".txtar") {
			names[strings.TrimPrefix(f, "testdata/")] = true
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			continue // deleted, not yet committed
		}
		for _, m := range fn.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
	}
	return names
}

// tracked returns the files of the tree that match, committed or about to be.
func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	args := append([]string{"ls-files", "-co", "--exclude-standard", "--"}, patterns...)
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		t.Skip("needs git and a checkout: " + err.Error())
	}
	return strings.Fields(string(out))
}

// TestExitCodes: every kind of error has a status, an exit code and a hint.
func TestExitCodes(t *testing.T) {
	kinds := cofferdam.Kinds()
	for k := cofferdam.Internal; k <= cofferdam.Tampered; k++ {
		i, ok := kinds[k]
		if !ok || i.Name == "" || i.HTTP == 0 || i.Exit == 0 || i.Hint == "" || i.Retry == "" {
			t.Errorf("kind %d is incomplete: %+v", k, i)
		}
		if cofferdam.ParseKind(i.Name) != k {
			t.Errorf("kind %d does not survive its name %q", k, i.Name)
		}
	}
	if len(kinds) != int(cofferdam.Tampered)+1 {
		t.Errorf("there are %d kinds in the table and %d constants", len(kinds), cofferdam.Tampered+1)
	}
}

// TestWords: an event's prefix names the room it is about, and every noun of
// the command line has a file of its name in cli and in api or service.
func TestWords(t *testing.T) {
	text, err := os.ReadFile("event.go")
	if err != nil {
		t.Fatal(err)
	}
	prefixes := map[string]string{
		"exec": "sandbox", "agent": "agent", "egress": "gateway/egress", "wire": "gateway/wire", "git": "gateway/git",
		"model": "gateway/model", "session": "session", "task": "task", "proof": "proof", "merge": "merge", "trace": "trace", "workspace": "workspace", "approval": "approval", "budget": "budget", "identity": "identity", "policy": "policy", "sandbox": "sandbox",
		"secret": "secret", "tool": "agent/loop",
	}
	for _, m := range regexp.MustCompile(`= "([a-z]+)\.[a-z]+"`).FindAllStringSubmatch(string(text), -1) {
		dir, ok := prefixes[m[1]]
		if _, err := os.Stat(filepath.Join(".", dir)); !ok || err != nil {
			t.Errorf("event prefix %q is no room", m[1])
		}
	}
	for _, noun := range []string{"task", "session", "merge", "repo", "model", "trace", "proof", "workspace", "approval", "policy"} {
		if _, err := os.Stat(filepath.Join("internal/cli", noun+".go")); err != nil {
			t.Errorf("the noun %s has no file of its name in internal/cli", noun)
		}
		if _, err := os.Stat(filepath.Join("internal/service", noun+".go")); err != nil {
			t.Errorf("the noun %s has no file of its name in internal/service", noun)
		}
	}
}

// TestMakefile: at most fifteen targets, each with a line of help.
func TestMakefile(t *testing.T) {
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := regexp.MustCompile(`(?m)^([a-z]+):(.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(targets) > 15 {
		t.Errorf("the Makefile has %d targets", len(targets))
	}
	for _, m := range targets {
		if !strings.Contains(m[2], "## ") {
			t.Errorf("the target %s has no help line", m[1])
		}
	}
}

// TestDocumentSizes: a longer document is a sign of a tree to simplify.
func TestDocumentSizes(t *testing.T) {
	for file, limit := range map[string]int{"ARCHITECTURE.md": 400, "CONTRIBUTING.md": 150, "AGENTS.md": 20} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if n := strings.Count(string(text), "\n"); n > limit {
			t.Errorf("%s has %d lines, more than %d", file, n, limit)
		}
	}
}
