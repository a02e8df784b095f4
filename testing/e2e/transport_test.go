package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/cmd/elrun/bench"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

// way is a set of flags, with the kind of path that peers of one host use with these flags.
type way struct {
	flags     string
	kind      string
	encrypted bool
}

// ways returns all transports, with the values of --encrypt that apply to them.
func ways() []way {
	return []way{
		{"--transport=auto", "shm", false},
		{"--transport=auto --encrypt=always", "shm", false}, // not encrypted, because the data does not leave the host
		{"--transport=shm", "shm", false},
		{"--transport=unix", "unix", false},
		{"--transport=direct", "direct", true},
		{"--transport=direct --encrypt=always", "direct", true},
		{"--transport=direct --encrypt=never", "direct", false},
		{"--transport=p2p", "p2p", true},
		{"--transport=p2p --encrypt=never", "p2p", true}, // libp2p always encrypts
	}
}

// Training uses each requested transport, reports it, and ends with the same weights.
func TestTransports(t *testing.T) {
	program, data := mnist(t)
	results := make(map[string][]string)
	for _, w := range ways() {
		t.Run(w.flags, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "events")
			args := slices.Concat([]string{"run", "-n", "3", "--listen", "local", "--events", log}, strings.Fields(w.flags),
				[]string{program, "--data", data, "--steps", "20", "--hidden", "32", "--exact"})
			stdout, stderr, status := process.Command(t, args...)
			if status != 0 {
				t.Fatalf("status %d\n%s\n%s", status, stdout, stderr)
			}
			if says := strings.Contains(stderr, "change them unnoticed"); says != (w.kind == "direct" && !w.encrypted) {
				t.Errorf("elrun says of plaintext: %t; errors: %s", says, stderr)
			}
			checkPaths(t, log, 3, w)
			sha := regexp.MustCompile(`sha256=\w+`).FindString(stdout)
			results[sha] = append(results[sha], w.flags)
		})
	}
	if len(results) != 1 {
		t.Errorf("weights differ: %v", results)
	}
}

// checkPaths compares the paths in a log with the wanted kind of path. The log must have one path
// from each of n members to each other member, without a reason why there is no better path.
func checkPaths(t *testing.T, log string, n int, want way) {
	t.Helper()
	all := paths(t, log)
	if len(all) != n*(n-1) {
		t.Errorf("%d paths, want %d", len(all), n*(n-1))
	}
	for _, p := range all {
		named := want.kind == "direct" || want.kind == "p2p" // a peer that dials by a Unix socket has no address
		if p.Kind != want.kind || p.Encrypted != want.encrypted || p.Why != "" || named && p.Addr == "" {
			t.Errorf("path %+v, want kind %s, encrypted %t", p, want.kind, want.encrypted)
		}
	}
}

// paths returns the paths in an event log.
func paths(t *testing.T, log string) []event.Path {
	t.Helper()
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var all []event.Path
	for line := range strings.Lines(string(b)) {
		var e event.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if p, ok := e.Body.(event.Path); ok {
			all = append(all, p)
		}
	}
	return all
}

// Calls have the right results with every transport.
func TestTransportBench(t *testing.T) {
	for _, w := range ways() {
		for _, name := range bench.Collectives() {
			if w.flags != "--transport=unix" && name != "allreduce" && name != "sendrecv" {
				continue // TestBench tests all calls in shared memory, and the other transports treat all calls alike
			}
			t.Run(name+" "+w.flags, func(t *testing.T) {
				checkBench(t, slices.Concat([]string{name, "-n", "3", "--sizes", "4,10K,1M", "--iters", "3"}, strings.Fields(w.flags))...)
			})
		}
	}
}

// checkBench runs elrun bench and checks that its results are right.
func checkBench(t *testing.T, args ...string) {
	t.Helper()
	stdout, stderr, status := process.Command(t, slices.Concat([]string{"bench", "--json"}, args)...)
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	sizes := 3
	if args[0] == "barrier" {
		sizes = 1
	}
	checkResults(t, stdout, sizes)
}

// checkResults checks the output of elrun bench.
func checkResults(t *testing.T, stdout string, sizes int) {
	t.Helper()
	for line := range strings.Lines(stdout) {
		var r bench.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Wrong != 0 || r.Iters == 0 {
			t.Errorf("%s: %v", line, err)
		}
		sizes--
	}
	if sizes != 0 {
		t.Errorf("%d results lack in:\n%s", sizes, stdout)
	}
}

// Eight peers, even if they are more than the cores, share memory and have vectors in it.
func TestEightShareMemory(t *testing.T) {
	for _, alloc := range []string{"--alloc", "--in-place", "--alloc --in-place", "--dtype=float16"} {
		t.Run(alloc, func(t *testing.T) {
			checkBench(t, slices.Concat([]string{"allreduce", "-n", "8", "--transport=shm", "--sizes", "4,64K,2M", "--iters", "5"},
				strings.Fields(alloc))...)
		})
	}
	e := start(t, "loop", 8, "--transport", "shm")
	for i := range 8 {
		e.Expect(t, fmt.Sprintf("[%d] sums 2000", i))
	}
	e.Signal(t, syscall.SIGINT)
	if status := e.Wait(t); status != 130 {
		t.Errorf("status %d, want 130", status)
	}
}

// obstacle keeps a peer from sharing memory.
type obstacle struct{ line, why string } // line of the shell, and reason in the log

// obstacles returns obstacles made of resource limits, by name.
func obstacles() map[string]obstacle {
	return map[string]obstacle{
		"first has no room for it":    {`if [ "$ELRUN_INDEX" = 0 ]; then ulimit -f 100; fi`, "file too large"},
		"nobody has":                  {`ulimit -f 100`, "file too large"},
		"one has no addresses for it": {`if [ "$ELRUN_INDEX" = 1 ]; then ulimit -v 8000000; fi`, "rank 1: .*cannot allocate memory"},
	}
}

// benchBehind runs elrun bench with three peers behind an obstacle. Unlike the roles they are not built for the race detector,
// which needs much address space.
func benchBehind(t *testing.T, o obstacle, flags ...string) (stdout, stderr string, status int) {
	t.Helper()
	return process.Command(t, slices.Concat([]string{"run", "-n", "3", "--listen", "local"}, flags, []string{"--",
		"sh", "-c", o.line + `; exec "$0" bench-peer allreduce --sizes=4,64K,1M --json`, process.Elrun()})...)
}

// If one peer cannot share memory, no peer of the host does, and the path events of each peer have
// the reason.
func TestNoSharedMemory(t *testing.T) {
	for name, o := range obstacles() {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "events")
			if stdout, stderr, status := benchBehind(t, o, "--events", log); status != 0 {
				t.Fatalf("status %d\n%s\n%s", status, stdout, stderr)
			}
			all := paths(t, log)
			for _, p := range all {
				if p.Kind != "unix" || !regexp.MustCompile(o.why).MatchString(p.Why) {
					t.Errorf("path %+v, want kind unix as %q", p, o.why)
				}
			}
			if len(all) != 6 {
				t.Errorf("%d paths, want 6", len(all))
			}
		})
	}
}

// With --transport=shm, peers that cannot share memory end with an error that has the reason.
func TestSharedMemoryOrNothing(t *testing.T) {
	for name, o := range obstacles() {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, status := benchBehind(t, o, "--transport=shm")
			if status != 1 || !regexp.MustCompile("no shared memory: .*"+o.why).MatchString(stdout+stderr) {
				t.Errorf("status %d\n%s\n%s", status, stdout, stderr)
			}
		})
	}
}

// If a process has room for the memory of a session but not for an arena, it copies vectors.
func TestNoArena(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", `ulimit -f 100000; exec "$0" bench allreduce -n 3 --transport=shm --alloc --sizes 64K,4M --iters 5 --json`,
		process.Elrun())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkResults(t, string(out), 2)
}

// Direct connections are unencrypted only if both ends have --encrypt=never.
func TestEncryptNeedsBoth(t *testing.T) {
	log := filepath.Join(t.TempDir(), "events")
	e := start(t, "train", 2, "--events", log, "--transport=direct", "--encrypt=never")
	e.expectSize(t, 0, 2)
	second := e.join(t, "train", 1, "--name", e.job.Name, "--transport=direct")
	second.expectSize(t, 0, 3)
	e.expectSize(t, 0, 3)
	e.expectSize(t, 1, 3)
	e.expectDone(t)
	cautious := second.field(t, 2, "id")
	clear, encrypted := 0, 0
	for _, p := range paths(t, log) {
		if p.Kind != "direct" || p.Encrypted != (p.Who == cautious) {
			t.Errorf("path %+v", p)
		}
		if p.Encrypted {
			encrypted++
		} else {
			clear++
		}
	}
	if clear == 0 || encrypted == 0 {
		t.Errorf("%d paths in the clear, %d encrypted", clear, encrypted)
	}
}

// A peer that asks for another transport uses this transport. The other peers continue to share
// memory among themselves, unless the peer asks for unix. Then all peers use unix until that peer
// has left.
func TestTransportsMixed(t *testing.T) {
	for transport, want := range map[string][]string{
		"direct": {"direct,shm", "direct,shm", "direct"},
		"p2p":    {"p2p,shm", "p2p,shm", "p2p"},
		"unix":   {"unix", "unix", "unix"}, // if one peer of a host does not share memory, none does
	} {
		t.Run(transport, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "events")
			e := start(t, "train", 2, "--events", log)
			e.expectSize(t, 0, 2)
			e.expectKinds(t, "shm", "shm")
			second := e.join(t, "train", 1, "--name", e.job.Name, "--transport", transport)
			second.expectSize(t, 0, 3)
			e.expectKinds(t, want...)
			if transport == "unix" {
				e.expectWhy(t, log, "rank 2 does not want to share memory")
			}
			second.Signal(t, syscall.SIGINT)
			second.Wait(t)
			e.expectKinds(t, "shm", "shm")
			e.expectDone(t)
		})
	}
}

// expectKinds waits until the members have paths of these kinds, by rank.
func (e *elrun) expectKinds(t *testing.T, want ...string) {
	t.Helper()
	process.Until(t, fmt.Sprintf("paths of kinds %q", want), func() bool {
		stdout, stderr, status := process.Command(t, "status", e.job.Name, "--json")
		var s launch.Status
		if err := json.Unmarshal([]byte(stdout), &s); err != nil || status != 0 {
			t.Fatalf("status %d, %v: %q", status, err, stderr)
		}
		var kinds []string
		for _, m := range s.Members {
			kinds = append(kinds, m.Path)
		}
		return slices.Equal(kinds, want)
	})
}

// expectWhy waits until the log has a path event with this reason why there is no better path.
func (e *elrun) expectWhy(t *testing.T, log, why string) {
	t.Helper()
	process.Until(t, fmt.Sprintf("%q in the log", why), func() bool {
		b, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(b), `"why":"`+why+`"`)
	})
}
