package stalls

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/simnet"
)

// The first bytes of the control messages by which a culprit is put out (package elastic: controlKind).
const (
	agreement = 1 // a message of the membership protocol
	stepDown  = 3 // asks the culprit to leave
)

// death is the moment at which the judge dies. The judge is the member that reports the culprit,
// asks the culprit to leave and proposes the view without it.
type death struct {
	reports  int // number of the judge's stall report at which it dies, from 1; 0 for another moment
	messages int // number of the judge's message at which it dies: 1 is the request to leave, later messages are of the agreement
}

// The judge dies at any moment from its first report until the members enter the view without the
// culprit. The other members put out the culprit and no other live member, and continue.
func TestJudgeDies(t *testing.T) {
	var worst time.Duration
	for reports := 1; reports <= 6; reports++ {
		worst = max(worst, judgeDies(t, death{reports: reports}))
	}
	died := 0
	for messages := 1; died == messages-1; messages++ {
		took := judgeDies(t, death{messages: messages})
		if took > 0 {
			died++
		}
		worst = max(worst, took)
	}
	if died < 5 {
		t.Errorf("the judge died at %d messages; a request and an agreement have more", died)
	}
	t.Logf("%d messages; out at most %v after the death", died, worst)
}

// judgeDies runs a job in which a member computes for ever, and the judge dies. It returns the time
// from the death until all other members have committed a step without both, or 0 if the judge has
// not reached the moment of death.
func judgeDies(t *testing.T, at death) (took time.Duration) {
	t.Run(fmt.Sprintf("%+v", at), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFieldOf(4, option[uint64]("first"))
			f.culprit = f.members[2]
			j := &judge{field: f, member: f.members[0], at: at, died: make(chan time.Time, 1)}
			f.watch = j.reports
			f.network.KillWhen(j.sends)
			f.start(t)
			<-time.After(2 * time.Second)
			f.culprit.holds(snare{at: computing, d: long})
			<-f.started
			select {
			case begun := <-j.died:
				if took = f.recovers(begun, j.member); took == 0 {
					t.Error("the others do not go on within five minutes")
				}
			case <-time.After(2 * time.Minute): // the judge has sent fewer messages
			}
			f.onlyOut(t)
			f.stop(t)
		})
	})
	return took
}

// In a large group a member has connections with, and heartbeats of, few other members. Some
// members begin the calls of a new session while others still wait in Connect for a member that
// does not enter. No member names a member that only waits.
func TestLargeGroupNamesNobodyThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFieldOf(18, option[uint64]("first"))
		f.start(t)
		<-time.After(time.Second)
		f.culprit.holds(snare{at: computing, d: long})
		<-f.started
		f.network.Kill(f.other().ID)
		<-time.After(2 * promised)
		f.onlyOut(t)
		named := 0
		for _, e := range f.log() {
			if _, ok := e.Body.(event.Stall); ok {
				named++
			}
		}
		if named == 0 {
			t.Error("nobody names the culprit")
		}
		f.stop(t)
	})
}

// judge kills a member, the judge, at a moment of its agreement with the others.
type judge struct {
	field  *field
	member *member
	at     death
	died   chan time.Time

	reported, sent atomic.Int32
}

// reports kills the judge at a report of a stall.
func (j *judge) reports(e event.Event) {
	if s, stall := e.Body.(event.Stall); stall && !s.Over && e.Peer == j.member.ID.Short() && int(j.reported.Add(1)) == j.at.reports {
		j.field.network.Kill(j.member.ID)
		j.died <- time.Now()
	}
}

// sends reports whether the judge dies instead of sending a message: the request to leave, or a
// message of the agreement after this request.
func (j *judge) sends(m simnet.Message) bool {
	if m.From != j.member.ID || m.Plane != simnet.Control || len(m.Payload) == 0 {
		return false
	}
	asks := m.Payload[0] == stepDown
	if !asks && (m.Payload[0] != agreement || j.sent.Load() == 0) {
		return false
	}
	if n := j.sent.Add(1); int(n) != j.at.messages || n > 1 && j.knownWithout() {
		return false
	}
	j.died <- time.Now()
	return true
}

// knownWithout reports whether all others have entered the view without the culprit.
func (j *judge) knownWithout() bool {
	entered := 0
	for _, e := range j.field.log() {
		if v, ok := e.Body.(event.View); ok && !slices.Contains(v.Members, j.field.culprit.ID.Short()) {
			entered++
		}
	}
	return entered == len(j.field.members)-1
}

// recovers waits until all members except the culprit and the dead member have committed a step in
// a view without both. It returns the time since begun, or 0 after five minutes.
func (f *field) recovers(begun time.Time, dead *member) time.Duration {
	for time.Since(begun) < 5*time.Minute {
		<-time.After(100 * time.Millisecond)
		entered, on := make(map[string]bool), make(map[string]bool)
		for _, e := range f.log() {
			switch b := e.Body.(type) {
			case event.View:
				entered[e.Peer] = !slices.Contains(b.Members, f.culprit.ID.Short()) && !slices.Contains(b.Members, dead.ID.Short())
			case event.Step:
				if entered[e.Peer] {
					on[e.Peer] = true
				}
			}
		}
		if len(on) == len(f.members)-2 {
			return time.Since(begun)
		}
	}
	return 0
}

// onlyOut checks that only the culprit is named in a stall or leaves, and that only killed members
// are lost.
func (f *field) onlyOut(t *testing.T) {
	t.Helper()
	dead := make(map[string]bool)
	for _, m := range f.members {
		dead[m.ID.Short()] = f.gone(m.ID)
	}
	for _, e := range f.log() {
		if dead[e.Peer] {
			continue
		}
		switch b := e.Body.(type) {
		case event.Stall:
			if b.Culprit != f.culprit.ID.Short() {
				t.Errorf("%s names another culprit: %+v", e.Peer, b)
			}
		case event.Lost:
			if !dead[b.Who] {
				t.Errorf("%s has lost %s (%s)", e.Peer, b.Who, b.Cause)
			}
		case event.Leave:
			if b.Who != f.culprit.ID.Short() || b.Reason != "stalled" {
				t.Errorf("%s says that %s has left (%s)", e.Peer, b.Who, b.Reason)
			}
		}
	}
}
