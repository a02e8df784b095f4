package stalls

import (
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/simnet"
)

// cause is a cause of a stall that a test injects at the member f.culprit.
type cause struct {
	name   string
	inject func(f *field)
	phases []string // what stall events may report as the culprit's activity
	loses  bool     // the group puts the culprit out
}

// long is longer than any run.
const long = time.Hour

// causes lists all tested causes. elrun promises to name the culprit for the first eight; the others are variants.
func causes() []cause {
	absent := []string{collective.PhaseAbsent}
	silent := []string{collective.PhaseAbsent, collective.PhaseSilent}
	slow := []string{collective.PhaseSilent, collective.PhaseSlow, collective.PhaseInside}
	return []cause{
		{"computes for ever", func(f *field) { f.culprit.holds(snare{at: computing, d: long}) }, absent, false},
		{"stopped", func(f *field) {
			f.network.Stop(f.culprit.ID)
			f.sets()
		}, silent, true},
		{"black hole", func(f *field) { f.cut(true, true) }, silent, true},
		{"black hole inward", func(f *field) { f.cut(true, false) }, silent, true},
		{"black hole outward", func(f *field) { f.cut(false, true) }, silent, true},
		{"busy between steps", func(f *field) { f.culprit.holds(snare{reporting, long, "evaluating"}) }, []string{"evaluating"}, false},
		{"slow link", func(f *field) { f.collapse(true, true) }, slow, false},
		{"callback hangs", func(f *field) { f.culprit.holds(snare{at: reporting, d: long}) }, absent, false},

		{"slow link inward", func(f *field) { f.collapse(true, false) }, slow, false},
		{"slow link outward", func(f *field) { f.collapse(false, true) }, slow, false},
		{"answers late", func(f *field) {
			f.link(simnet.Link{Delay: 1400 * time.Millisecond, Lag: 100 * time.Millisecond}, true, true, simnet.Data)
			f.sets()
		}, slow, false},
		{"waits for data", func(f *field) { f.culprit.holds(snare{at: computing, d: 4 * time.Second}) }, absent, false},
		{"begins a step for ever", func(f *field) { f.culprit.holds(snare{at: beginning, d: long}) }, absent, false},
		{"does not enter a new session", func(f *field) {
			f.culprit.holds(snare{at: computing, d: long})
			<-f.started
			<-time.After(100 * time.Millisecond)
			f.network.Kill(f.other().ID)
		}, []string{collective.PhaseAbsent, "not in the session"}, false},
	}
}

// other returns a random member that is not the culprit. If a test kills this member, its log is not judged.
func (f *field) other() *member {
	return f.members[(f.culprit.Index+1+f.random.IntN(len(f.members)-1))%len(f.members)]
}

// cut makes the links to the culprit, or from it, black holes.
func (f *field) cut(in, out bool) {
	if in {
		f.network.Cut(simnet.Any, f.culprit.ID)
	}
	if out {
		f.network.Cut(f.culprit.ID, simnet.Any)
	}
	f.sets()
}

// link changes the links to the culprit, or from it.
func (f *field) link(l simnet.Link, in, out bool, planes ...simnet.Plane) {
	if in {
		f.network.SetLink(simnet.Any, f.culprit.ID, l, planes...)
	}
	if out {
		f.network.SetLink(f.culprit.ID, simnet.Any, l, planes...)
	}
}

// collapse takes nearly all bandwidth from the links to the culprit, or from it. This happens when
// the first message of a bucket uses such a link. Heartbeats continue, as on a real link, where
// short packets pass between long packets.
func (f *field) collapse(in, out bool) {
	var begun atomic.Bool
	f.network.KillWhen(func(m simnet.Message) bool {
		touches := m.From == f.culprit.ID && out || m.To == f.culprit.ID && in
		if touches && m.Plane == simnet.Data && m.Bytes > 1000 && begun.CompareAndSwap(false, true) {
			f.link(simnet.Link{Delay: time.Millisecond, Bandwidth: 4000}, in, out, simnet.Data)
			f.sets()
		}
		return false
	})
}
