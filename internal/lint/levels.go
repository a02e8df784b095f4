package lint

import (
	"slices"
	"strings"
)

// layer is a level of the design. Its packages may import packages of lower layers only, so that
// each layer can be read and tested without the layers above it.
type layer struct {
	Level    string
	Packages []string
}

// layers lists every package of the module from the bottom up (docs/architecture.md,
// Packages). Packages of one layer do not import each other, with one exception: under a pattern
// with "...", a package may import the packages in folders below its own.
func layers() []layer {
	return slices.Concat(libraries(), rooms(), []layer{
		// The measurements of "elrun bench", the manifest of "elrun k8s", the screens of "elrun top", the tables of "elrun report", and
		// a simulation of the policies of loadbal on traces of speeds.
		{"level 6, below the commands", []string{"cmd/elrun/bench", "cmd/elrun/k8s", "cmd/elrun/summary", "cmd/elrun/top", "scripts/balsim"}},
		// Commands. Nothing imports them.
		{"level 6", []string{"cmd/...", "examples/...", "scripts/..."}},
		// Packages for tests only. They may import all others.
		{"tests", []string{"internal/lint", "testing/..."}},
	})
}

// libraries lists the packages that users call, without the launcher.
func libraries() []layer {
	return []layer{
		// Code that all other packages may use: element types, vector kernels, events, shares.
		{"level 0, below the kernels", []string{"dtype", "internal/apportion", "internal/pause", "internal/product", "internal/sharedkey"}},
		{"level 0", []string{"internal/kernel", "internal/gobtype", "internal/race", "internal/cores", "internal/private", "internal/printable", "internal/preempt", "internal/rendezvous", "internal/scheduler", "internal/netwatch", "event", "loadbal"}},
		// Memory that the ranks of a host share with the calls in it, and socket I/O with
		// busy-polling.
		{"level 0, over the kernels", []string{"internal/shm", "internal/netpoll"}},
		// What the events of a job say of it as a whole. Pure code.
		{"level 0, over the events", []string{"event/timeline"}},
		// The same as a trace. Pure code.
		{"level 0, over the model", []string{"event/trace"}},
		// Algorithms over the connections to two neighbours; they do not depend on a network.
		{"level 1", []string{"ring"}},
		// The interface that a transport implements, the headers of messages, and the errors that
		// ranks send to each other.
		{"level 2, below collective", []string{"collective/transport"}},
		// The search for the rank that blocks a call, the adaptive timeout of calls, and the record of the last
		// calls with what it tells. Pure code.
		{"level 2, over the transport", []string{"collective/internal/stall", "collective/flight"}},
		// The collective calls of users, over a Transport that the caller passes in.
		{"level 2", []string{"collective"}},
		// The agreement on the next view, without a clock, and the transfer of state to a joining
		// peer, over a Source that the caller passes in.
		{"level 3, below elastic", []string{"elastic/member", "elastic/wish", "elastic/internal/transfer"}},
		// Membership, over a network that the caller passes in.
		{"level 3", []string{"elastic"}},
		// State that only some members hold, moved by collective calls in a loop of elastic.
		{"level 3, above elastic", []string{"elastic/parts"}},
		// Frames, tickets, mailboxes, and the lookup of members: parts that several transports
		// share.
		{"level 4, common to transports", []string{"transport/internal/wire", "transport/ticket", "transport/mailbox", "internal/discovery"}},
		// Connections between two processes that already have each other's identities, for use by a
		// transport.
		{"level 4, below a transport", []string{"transport/internal/direct", "transport/internal/punch"}},
		// The session protocol that all networks have in common.
		{"level 4, below the transports", []string{"transport/mesh"}},
		// Files that are read without a copy.
		{"level 4, below data files", []string{"trainer/internal/mmap"}},
		// The ledger of contributed microbatches, the audit of contributions, and the growth of the
		// batch; above, how microbatches change their owner.
		{"level 4, below the training loop", []string{"trainer/internal/ledger", "trainer/internal/audit", "trainer/internal/growth", "trainer/internal/laps", "trainer/internal/level"}},
		{"level 4, above the ledger", []string{"trainer/internal/steal"}},
		// Parts of the training loop: optimisers and schedules, data files, exact sums,
		// checkpoints.
		{"level 4, below the trainer", []string{"trainer/optim", "trainer/idx", "trainer/npy", "trainer/exact", "trainer/compress", "trainer/checkpoint"}},
		// The transports and the training loop, which do not import each other.
		{"level 4", []string{"transport/...", "trainer"}},
		// Models, and ways to train them.
		{"level 4, above the trainer", []string{"trainer/nn", "trainer/tensors", "trainer/local", "trainer/remote"}},
	}
}

// rooms lists the packages of the launcher.
func rooms() []layer {
	return []layer{
		// The rooms of the launcher, by process. What all of them share is at the bottom.
		{"level 5, data of jobs", []string{"launch/spec", "launch/internal/job", "launch/internal/rpc", "launch/internal/sink"}},
		{"level 5, messages", []string{"launch/internal/wire"}},
		{"level 5, over the messages", []string{"launch/internal/say", "launch/internal/proc", "launch/internal/ctl", "launch/internal/nodes", "launch/metrics", "launch/internal/scalars", "launch/internal/kubeflow"}},
		{"level 5, other hosts", []string{"launch/internal/agent", "launch/internal/hosts"}},
		{"level 5, over the hosts", []string{"launch/internal/doctor"}},
		// What runs in the process of a peer, which connects the concrete transports with membership and
		// collective calls, and what runs in the launcher.
		{"level 5, processes", []string{"launch/internal/inpeer", "launch/internal/run"}},
		{"level 5, programs", []string{"launch/program"}},
		// The face of all of these.
		{"level 5", []string{"launch"}},
	}
}

// confinement restricts an import to a few packages or files.
type confinement struct {
	Import  []string // patterns of import paths
	Allowed []string // patterns of packages, or names of files
	Instead string
}

// confinements lists imports that must not spread.
func confinements() []confinement {
	return []confinement{
		{
			// A C compiler is not needed to build elrun, nor a libc to run it.
			Import:  []string{"C"},
			Instead: "write it in Go: elrun builds with CGO_ENABLED=0",
		},
		{
			// Code that can corrupt memory stays small enough to be reviewed as a whole.
			Import:  []string{"unsafe"},
			Allowed: []string{"internal/kernel", "internal/shm"},
			Instead: "use the views and kernels of internal/kernel, or add one there",
		},
		{
			// An incompatible change of libp2p must affect only these packages, and all others must
			// be testable without it.
			Import:  []string{"github.com/libp2p/...", "github.com/multiformats/..."},
			Allowed: []string{"transport/p2p", "transport/ticket", "launch", "internal/discovery"},
			Instead: "use transport.Transport or elastic.Network; transport/p2p implements them",
		},
		{
			// Gorgonia needs a dozen modules, which only its users should need, and its releases
			// lag behind Go's, so it must be replaceable in one package.
			Import:  []string{"gorgonia.org/..."},
			Allowed: []string{"trainer/tensors", "examples/tensors"},
			Instead: "use the adapter, package trainer/tensors",
		},
		{
			// Plotting needs a dozen modules, which users of elrun should not have to download.
			Import:  []string{"gonum.org/v1/plot/..."},
			Allowed: []string{"scripts/figures/..."},
			Instead: "draw in a command of scripts/figures, which is a module of its own",
		},
		{
			// A library that reads flags would conflict with the flags of the program that uses it.
			Import:  []string{"github.com/alecthomas/kong/..."},
			Allowed: []string{"cmd/...", "examples/..."},
			Instead: "take an options struct; flags are read in package main",
		},
		{
			// Drawing on a terminal needs a dozen modules, which programs that use the libraries should not contain.
			Import:  []string{"charm.land/...", "github.com/charmbracelet/..."},
			Allowed: []string{"cmd/elrun/top"},
			Instead: "return lines; cmd/elrun/top draws them",
		},
	}
}

// ban lists packages that, except for their tests, must not have some imports.
type ban struct {
	Packages []string
	Imports  []string // patterns of import paths
	Instead  string
}

// bans lists the imports that packages must not have, although the layers would allow them.
func bans() []ban {
	return []ban{
		{
			// Without clock, network and randomness, the same inputs give the same decisions at
			// every rank, and in every replay of a test.
			Packages: []string{"dtype", "elastic/member", "transport/internal/wire", "loadbal", "internal/apportion", "trainer/internal/ledger", "trainer/internal/steal", "trainer/internal/growth", "trainer/internal/level", "ring"},
			Imports:  []string{"net/...", "os/...", "syscall", "time", "log/...", "math/rand/..."},
			Instead:  "this package is pure: take what you need as an argument and return what is to be done; the caller has the clock, the network and the randomness",
		},
		{
			// Because elastic does not import net, a whole group can run in a test in virtual time.
			Packages: []string{"elastic"},
			Imports:  []string{"net/..."},
			Instead:  "reach the network through elastic.Network",
		},
		{
			// Because launch does not import trainer, a program that uses only the collectives does
			// not contain the trainer.
			Packages: []string{"launch/..."},
			Imports:  []string{Module + "/trainer/..."},
			Instead:  "launch starts any program; let the program bring launch and trainer together",
		},
	}
}

// exemption allows one breach of one rule in one file.
type exemption struct {
	Rule string
	File string
	Text string // part of the problem's text
	Why  string
}

// exemptions lists the exceptions to the rules. The code of a rule may have its own list of
// exceptions, such as examplesDue. An entry that is no longer needed
// is itself a problem (UnusedExemptions).
func exemptions() []exemption {
	return []exemption{{
		Rule: "calls", File: "testing/cluster/process.go", Text: "os.Exit",
		Why: "a process that cluster.InProcesses started has no other program around it: it ends with the function",
	}}
}

// covers reports whether the exemption is for p.
func (e exemption) covers(p Problem) bool {
	return e.Rule == p.Rule && e.File == p.File && strings.Contains(p.Text, e.Text)
}

// exempt reports whether some exemption is for p.
func exempt(p Problem) bool {
	return slices.ContainsFunc(exemptions(), func(e exemption) bool { return e.covers(p) })
}

// UnusedExemptions returns the exemptions that no problem of the packages needs, as text.
func UnusedExemptions(packages []*Package) []string {
	var problems []Problem
	for _, r := range Rules() {
		// Rules without exemptions are not run again: they take seconds.
		if slices.ContainsFunc(exemptions(), func(e exemption) bool { return e.Rule == r.Name }) {
			problems = append(problems, r.problems(packages)...)
		}
	}
	var unused []string
	for _, e := range exemptions() {
		if !slices.ContainsFunc(problems, e.covers) {
			unused = append(unused, e.File+": "+e.Text)
		}
	}
	return unused
}

// place is the position of a package among the layers.
type place struct {
	height  int // index of the layer
	level   string
	pattern string // the pattern that names the package
}

// placeOf finds the place of a package by the most specific pattern, so that a folder can have
// another layer than the folder above it.
func placeOf(dir string) (found place, ok bool) {
	for i, l := range layers() {
		for _, pattern := range l.Packages {
			better := pattern == dir || len(pattern) > len(found.pattern) && found.pattern != dir
			if matches(dir, pattern) && better {
				found, ok = place{i, l.Level, pattern}, true
			}
		}
	}
	return found, ok
}
