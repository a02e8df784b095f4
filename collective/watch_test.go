package collective

import (
	"slices"
	"testing"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// watched returns a world of one rank with one call, which has been waiting for a minute.
func watched(told func(Stall)) (*world, *operation) {
	w := &world{started: time.Now().Add(-time.Minute), ranks: 1, calls: make(map[*operation]struct{}),
		contacts: make(map[int]*contact)}
	w.opts.OnStall = told
	o := &operation{Comm: &Comm{world: w, size: 1}, peer: -1}
	w.calls[o] = struct{}{}
	return w, o
}

// A process that was stopped does not blame the others for the time it lost.
func TestExcuse(t *testing.T) {
	told := 0
	w, o := watched(func(Stall) { told++ })
	w.contacts[0] = &contact{}
	w.excuse(time.Since(w.started))
	w.lookAtAll()
	w.lookAtAll()
	if told > 0 || len(w.contacts) > 0 {
		t.Errorf("blamed %d times, %d contacts kept", told, len(w.contacts))
	}
	o.progress.Store(0) // without the excuse
	w.lookAtAll()
	if w.lookAtAll(); told != 1 {
		t.Errorf("a wait of a minute was reported %d times", told)
	}
}

// A signal with ranks that do not exist is dropped.
func TestStrangeRanks(t *testing.T) {
	for _, p := range []plight{{waits: 3, slow: -1}, {waits: -2, slow: -1}, {waits: -1, slow: 3}, {waits: -1, slow: -2}} {
		w := &world{ranks: 3, contacts: map[int]*contact{1: {pending: 1}}}
		w.hear(transport.Signal{From: 1, Data: signal{kind: signalTell, plight: p}.append(nil)})
		if w.contacts[1].pending == 0 {
			t.Errorf("%+v was taken in", p)
		}
	}
}

// asked makes an operation of rank 0 of n, in which the others have answered as told.
func asked(n int, change func(o *operation)) *operation {
	w := &world{ranks: n, contacts: make(map[int]*contact)}
	o := &operation{Comm: &Comm{world: w, size: n}, peer: -1}
	o.roll.states = make(map[int]state)
	for peer := 1; peer < n; peer++ {
		w.contacts[peer] = &contact{slowest: time.Millisecond, plight: plight{inside: true, waits: -1, slow: -1}}
		o.roll.states[peer] = present
	}
	change(o)
	return o
}

// blame is what was answered, and who is to blame, -1 for nobody.
type blame struct {
	change func(o *operation)
	want   int
	phase  string
}

// fromStates are cases that the answers decide, at rank 0 of 4.
func fromStates(now time.Duration) map[string]blame {
	return map[string]blame{
		"nothing is known":        {func(o *operation) {}, -1, PhaseInside},
		"a message is waited for": {func(o *operation) { o.waiting.Store(3 + 1) }, 3, PhaseInside},
		"one is not there": {func(o *operation) {
			o.waiting.Store(1 + 1)
			o.roll.states[2], o.contacts[2].plight.inside = absent, false
		}, 2, PhaseAbsent},
		"one does not answer, for which another waits": {func(o *operation) {
			o.roll.states[1], o.contacts[1].plight.waits = absent, 2
			o.contacts[2].pending, o.contacts[2].missing = now-silentAfter, silentAsks
		}, 2, PhaseSilent},
		"one waits in another call for one that is not there": {func(o *operation) {
			o.roll.states[1], o.contacts[1].plight.waits = absent, 2
			o.roll.states[2], o.contacts[2].plight.inside = absent, false
		}, 2, PhaseAbsent},
		"one waits in another communicator for a stranger": {func(o *operation) {
			o.size = 3 // the stranger is not in this one
			delete(o.contacts, 3)
			o.roll.states[1], o.contacts[1].plight.waits = absent, 3
		}, 3, PhaseAbsent},
		"a chain of those who wait ends at a stranger": {func(o *operation) {
			o.size = 3
			delete(o.contacts, 3)
			o.roll.states[1], o.contacts[1].plight.waits = absent, 2
			o.contacts[2].plight.waits = 3
		}, 3, PhaseAbsent},
		"those who wait go round": {func(o *operation) {
			o.roll.states[1], o.contacts[1].plight.waits = absent, 2
			o.contacts[2].plight.waits = 1
			o.waiting.Store(1 + 1)
		}, 1, PhaseInside},
	}
}

// fromTimes are cases in which all are in the call: how long answers take decides.
func fromTimes(now time.Duration) map[string]blame {
	return map[string]blame{
		"an answer is on its way": {func(o *operation) {
			o.waiting.Store(1 + 1)
			o.contacts[2].pending, o.contacts[2].missing = now-slowAfter/2, 1
		}, 1, PhaseInside},
		"the answer of one is late": {func(o *operation) {
			o.waiting.Store(1 + 1)
			o.contacts[2].pending = now - slowAfter
		}, 2, PhaseSlow},
		"another waits long for the answer of one": {func(o *operation) {
			o.waiting.Store(1 + 1)
			o.contacts[1].plight.slow, o.contacts[1].plight.took = 3, time.Second
		}, 3, PhaseSlow},
		"one that is slow to answer waits long for others": {func(o *operation) {
			o.contacts[1].plight.slow, o.contacts[1].plight.took = 3, time.Second
			o.contacts[1].slowest = 10 * time.Millisecond
		}, 1, PhaseSlow},
		"one waits long for this rank": {func(o *operation) {
			o.contacts[1].plight.slow, o.contacts[1].plight.took = 0, time.Second
		}, 1, PhaseSlow},
	}
}

// Whoever is to blame is found in the answers, whatever stands beside it.
func TestCulprits(t *testing.T) {
	const now = time.Minute
	for _, cases := range []map[string]blame{fromStates(now), fromTimes(now)} {
		for name, c := range cases {
			var want []int
			if c.want >= 0 {
				want = []int{c.want}
			}
			if got, phase := asked(4, c.change).culprits(now); !slices.Equal(got, want) || phase != c.phase {
				t.Errorf("%s: ranks %v (%s), want %v (%s)", name, got, phase, want, c.phase)
			}
		}
	}
}
