package mesh

import (
	"errors"
	"time"

	"github.com/elrun/elrun/elastic"
)

var errNotReached = errors.New("has not come yet")

// startGrace is how long Connect waits for a member that was never reached before, until it probes
// the member: all peers of a job start at about the same time, and some may not listen yet.
const startGrace = time.Second

// The higher rank of a pair opens its streams. A higher rank that is dead never opens them, and the
// lower rank would wait without a sign of that. So Connect opens a control stream to each higher
// rank with which there is none.

// probeMissing probes the higher ranks whose lanes are planned and with which there is no control
// stream. Lower ranks are dialled anyway.
func (m *Mesh) probeMissing(a *attempt) {
	for rank, member := range a.view.Members {
		if rank < a.self || !a.planned[rank] {
			continue
		}
		up, met := m.events.status(member.ID)
		switch {
		case up: // down is called when the control stream ends
		case met:
			m.probe(a, member.ID, 0)
		default:
			m.probe(a, member.ID, startGrace)
		}
	}
}

// down probes a peer whose control streams have ended, once for each attempt that may wait for the
// peer.
func (m *Mesh) down(id elastic.ID) {
	for _, a := range m.views.waitingFor(id) {
		m.probe(a, id, 0)
	}
}

// probe starts a goroutine that opens a control stream to a member, and fails the attempt if that
// is impossible. The goroutine first waits for the duration wait, in which the member may start.
func (m *Mesh) probe(a *attempt, id elastic.ID, wait time.Duration) {
	m.life.run(func() {
		err := m.life.pause(a.ctx, wait, errNotReached)
		if err == nil {
			_, err = m.controls.stream(a.ctx, id)
		}
		if err != nil && a.ctx.Err() == nil && !m.life.isOver() {
			a.fail(a.lost(a.view.Rank(id), err))
		}
	})
}
