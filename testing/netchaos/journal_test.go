package netchaos

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// journal is the event log of an elrun.
type journal struct {
	*process.Log
	torn bool // the elrun was killed with SIGKILL, so the last events of its peers may be missing
}

// newJournal returns the event log at a path.
func newJournal(t *testing.T, path string) *journal {
	t.Helper()
	return &journal{Log: process.NewLog(t, path)}
}

// first returns the first event after a time with a body of type B for which fits returns true.
func first[B event.Body](t *testing.T, j *journal, at time.Time, fits func(e event.Event, b B) bool) (event.Event, bool) {
	t.Helper()
	return process.First(j.Read(t).Since(at), fits)
}

// without returns a condition for first: the view does not have the given member.
func without(id string) func(event.Event, event.View) bool {
	return func(_ event.Event, v event.View) bool { return !slices.Contains(v.Members, id) }
}

// ledger collects the reports of all journals of a job about each step and each epoch.
type ledger struct {
	digests map[int64]map[string]string   // by step and digest: a peer that has reported the digest
	parts   map[int64]map[string][][2]int // microbatches, by step and peer
	views   map[uint64]map[string]string  // by epoch and members: a peer that has reported the view
	epochs  map[int64]map[uint64]bool     // by step: the epochs in which the step was committed
	members map[uint64][]string           // members by epoch
	torn    []torn
	last    int64
}

// torn describes a journal that may lack its last events.
type torn struct {
	peers map[string]bool
	last  int64 // last step in the journal
}

// newLedger reads the journals.
func newLedger(t *testing.T, journals []*journal) *ledger {
	t.Helper()
	l := &ledger{digests: map[int64]map[string]string{}, parts: map[int64]map[string][][2]int{},
		views: map[uint64]map[string]string{}, epochs: map[int64]map[uint64]bool{}, members: map[uint64][]string{}}
	for _, j := range journals {
		of := torn{peers: map[string]bool{}}
		for _, e := range j.Read(t).Events {
			of.peers[e.Peer] = true
			switch b := e.Body.(type) {
			case event.View:
				l.members[e.Epoch] = b.Members
				put(l.views, e.Epoch, fmt.Sprint(b.Members, " voters ", b.Voters), e.Peer)
			case event.Step:
				l.last, of.last = max(l.last, e.Step), max(of.last, e.Step)
				put(l.epochs, e.Step, e.Epoch, true)
				if b.Digest != "" {
					put(l.digests, e.Step, b.Digest, e.Peer)
				}
				if len(b.Microbatches) > 0 {
					put(l.parts, e.Step, e.Peer, b.Microbatches)
				}
				for _, c := range b.OfLost {
					put(l.parts, c.Step, c.Peer, c.Microbatches)
				}
			}
		}
		if j.torn {
			l.torn = append(l.torn, of)
		}
	}
	return l
}

// whole reports whether the journals must have all microbatches of a step. Microbatches may be
// missing if the elrun process of a member was killed with SIGKILL, and the step comes after the
// last step in the journal of that process.
func (l *ledger) whole(step int64) bool {
	for epoch := range l.epochs[step] {
		for _, of := range l.torn {
			if step > of.last && slices.ContainsFunc(l.members[epoch], func(id string) bool { return of.peers[id] }) {
				return false
			}
		}
	}
	return step < l.last // some peers may not have reported the last step
}

// put sets m[a][b].
func put[A, B comparable, C any](m map[A]map[B]C, a A, b B, c C) {
	if m[a] == nil {
		m[a] = map[B]C{}
	}
	m[a][b] = c
}

// check fails the test with the first problems of the ledger.
func (l *ledger) check(t *testing.T, s settings) {
	t.Helper()
	want, err := replay(t.Context(), s, l.last)
	if err != nil {
		t.Fatalf("replay: %v", err)
	}
	problems := l.problems(want, s.size())
	for _, p := range problems[:min(len(problems), 20)] {
		t.Error(p)
	}
	if len(problems) > 20 {
		t.Errorf("and %d more", len(problems)-20)
	}
	t.Logf("%d steps in %d epochs agree with a single process", l.last, len(l.views))
}

// problems returns the violations that the ledger has: two views of one epoch; two digests of one
// step; a digest that differs from want, which a single process has computed; and microbatches that
// were not contributed exactly once. n is the number of microbatches in a step.
func (l *ledger) problems(want []string, n int) []string {
	var out []string
	for _, epoch := range slices.Sorted(maps.Keys(l.views)) {
		if v := l.views[epoch]; len(v) > 1 {
			out = append(out, fmt.Sprintf("epoch %d has %d views: %v", epoch, len(v), v))
		}
	}
	for step := int64(1); step <= l.last; step++ {
		digests := l.digests[step]
		if len(digests) > 1 || step < l.last && len(digests) == 0 {
			out = append(out, fmt.Sprintf("step %d has the digests %v", step, digests))
		}
		for digest, who := range digests {
			if digest != want[step-1] {
				out = append(out, fmt.Sprintf("step %d at %s has the digest %s, a single process has %s", step, who, digest, want[step-1]))
			}
		}
		if err := once(l.parts[step], n, l.whole(step)); err != nil {
			out = append(out, fmt.Sprintf("step %d, committed in epochs %v: %v", step, slices.Sorted(maps.Keys(l.epochs[step])), err))
		}
	}
	return out
}

// once returns an error unless the parts of a step contain each of n microbatches once. If whole is false, microbatches may be
// missing.
func once(parts map[string][][2]int, n int, whole bool) error {
	seen := make([]int, n)
	for _, ranges := range parts {
		for _, r := range ranges {
			for k := r[0]; k < r[1] && k < n; k++ {
				seen[k]++
			}
		}
	}
	for k, n := range seen {
		if n > 1 || n == 0 && whole {
			return fmt.Errorf("microbatch %d was contributed %d times: %v", k, n, parts)
		}
	}
	return nil
}
