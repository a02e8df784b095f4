package netchaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/event"
)

// The ledger finds each mistake. Each case is a log of two hosts with at most one mistake.
func TestLedger(t *testing.T) {
	view := func(epoch uint64, members ...string) event.Event {
		return event.Event{Epoch: epoch, Body: event.View{Members: members, Voters: members}}
	}
	step := func(peer string, n int64, digest string, first, end int, lost ...event.Contribution) event.Event {
		return event.Event{Peer: peer, Epoch: 1, Step: n, Body: event.Step{Digest: digest, Microbatches: [][2]int{{first, end}}, OfLost: lost}}
	}
	last := []event.Event{step("a", 3, "z", 0, 10), step("b", 3, "z", 10, 20)}
	lost := event.Contribution{Peer: "c", Step: 2, Microbatches: [][2]int{{15, 20}}}
	for name, c := range map[string]struct {
		events  []event.Event
		problem string // part of the only problem; empty for no problem
	}{
		"good":            {[]event.Event{view(1, "a", "b"), view(1, "a", "b"), step("a", 2, "y", 0, 10), step("b", 2, "y", 10, 20)}, ""},
		"of one lost":     {[]event.Event{step("a", 2, "y", 0, 10, lost), step("b", 2, "y", 10, 15, lost)}, ""},
		"two views":       {[]event.Event{view(2, "a"), view(2, "b"), step("a", 2, "y", 0, 20)}, "epoch 2 has 2 views"},
		"two digests":     {[]event.Event{step("a", 2, "y", 0, 20), step("b", 2, "", 0, 0), step("b", 2, "x", 0, 0)}, "step 2"},
		"wrong digest":    {[]event.Event{step("a", 2, "x", 0, 20)}, "a single process has y"},
		"twice":           {[]event.Event{step("a", 2, "y", 0, 20), step("b", 2, "y", 19, 20)}, "microbatch 19 was contributed 2 times"},
		"two groups":      {[]event.Event{step("a", 2, "y", 0, 20), step("b", 2, "y", 0, 20)}, "contributed 2 times"},
		"never":           {[]event.Event{step("a", 2, "y", 0, 19)}, "microbatch 19 was contributed 0 times"},
		"step left out":   {nil, "step 2"},
		"of lost, double": {[]event.Event{step("a", 2, "y", 0, 20, lost)}, "contributed 2 times"},
	} {
		all := slices.Concat([]event.Event{step("a", 1, "w", 0, 20)}, c.events, last)
		problems := newLedger(t, []*journal{written(t, all)}).problems([]string{"w", "y", "z"}, microbatches)
		if c.problem == "" && len(problems) > 0 || c.problem != "" && !strings.Contains(strings.Join(problems, "; "), c.problem) {
			t.Errorf("%s: problems %q, want %q", name, problems, c.problem)
		}
	}
}

// The ledger permits missing microbatches of a step only if an elrun process was killed with
// SIGKILL, the step comes after the last step in the journal of that process, and one of its peers
// was a member.
func TestLedgerTorn(t *testing.T) {
	step := func(peer string, n int64, epoch uint64, first, end int) event.Event {
		return event.Event{Peer: peer, Step: n, Epoch: epoch, Body: event.Step{Digest: fmt.Sprint(n), Microbatches: [][2]int{{first, end}}}}
	}
	view := func(epoch uint64, members ...string) event.Event {
		return event.Event{Peer: "a", Epoch: epoch, Body: event.View{Members: members}}
	}
	for name, c := range map[string]struct {
		missing int64 // step of which a part is missing
		twice   bool  // the step also has another part twice
		problem bool
	}{
		"in its journal":          {missing: 1, problem: true},
		"after it":                {missing: 2},
		"after it, and one twice": {missing: 2, twice: true, problem: true},
		"without its peers":       {missing: 3, problem: true},
	} {
		mine := []event.Event{view(1, "a", "b"), view(2, "a")}
		for n := int64(1); n <= 4; n++ {
			end := 20
			if n == c.missing {
				end = 19
			}
			first := 10 * max(0, 2-n) // b contributed the first half of step 1
			mine = append(mine, step("a", n, uint64(1+n/3), int(first), end))
		}
		if c.twice {
			mine = append(mine, step("c", c.missing, 1, 0, 1))
		}
		its := written(t, []event.Event{step("b", 1, 1, 0, 10)})
		its.torn = true
		problems := newLedger(t, []*journal{written(t, mine), its}).problems([]string{"1", "2", "3", "4"}, microbatches)
		if len(problems) > 0 != c.problem {
			t.Errorf("%s: problems %q, want some: %t", name, problems, c.problem)
		}
	}
}

// written returns a journal with these events.
func written(t *testing.T, events []event.Event) *journal {
	t.Helper()
	var b []byte
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b = append(append(b, line...), '\n')
	}
	path := filepath.Join(t.TempDir(), "events")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return newJournal(t, path)
}

// The hosts in partition.majority are more than half of all hosts. They are connected with each
// other, except for one pair at most.
func TestPartitionsAreAsNamed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{}
	for range 1000 {
		p := newPartition(r, groupSize)
		seen[p.name] = true
		if n := len(p.majority); n > 0 && n <= groupSize/2 {
			t.Fatalf("%+v: the majority has %d hosts", p, n)
		}
		inner := 0
		for _, h := range p.holes {
			if h.from == h.to {
				t.Fatalf("%+v: a host is cut off from itself", p)
			}
			if slices.Contains(p.majority, h.from) && slices.Contains(p.majority, h.to) {
				inner++
			}
		}
		if pair := strings.HasPrefix(p.name, "pair"); inner > 0 && !pair || inner > 2 {
			t.Fatalf("%+v: %d holes inside the majority", p, inner)
		}
	}
	if len(seen) != 7 {
		t.Errorf("only these kinds came up in 1000: %v", seen)
	}
}
