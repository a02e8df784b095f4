package mesh

import (
	"errors"
	"time"

	"github.com/elrun/elrun/elastic"
)

var errMissing = errors.New("has not come yet")

// settlingTime is how long a member may take to come that was never there: all peers of a job
// start at about the same time.
const settlingTime = time.Second

// A member of a higher rank opens the streams of a pair. If it is dead it never will, and
// nothing else would tell: so Connect asks those with whom there is no control stream.

// probeMissing probes those whose lanes are planned and with whom there is no control stream. Lower ranks
// are dialled anyway.
func (m *Mesh) probeMissing(a *attempt) {
	for rank, member := range a.view.Members {
		if rank < a.self || !a.planned[rank] {
			continue
		}
		up, met := m.links.seen(member.ID)
		switch {
		case up: // when that ends down is called
		case met:
			m.probe(a, member.ID, 0)
		default:
			m.probe(a, member.ID, settlingTime)
		}
	}
}

// down probes a peer whose control streams have ended for the attempts that wait for
// it.
func (m *Mesh) down(id elastic.ID) {
	m.mu.Lock()
	var hit []*attempt
	for _, a := range m.attempts {
		if rank := a.view.Rank(id); rank >= 0 && a.planned[rank] && a.ctx.Err() == nil {
			hit = append(hit, a)
		}
	}
	m.mu.Unlock()
	for _, a := range hit {
		m.probe(a, id, 0)
	}
}

// probe opens a control stream to a member, in a goroutine, and fails the attempt if the
// member is dead. It first waits for the given time, in which the member may come.
func (m *Mesh) probe(a *attempt, id elastic.ID, wait time.Duration) {
	if !m.begin() {
		return
	}
	go func() {
		defer m.working.Done()
		err := m.pause(a.ctx, wait, errMissing)
		if err == nil {
			_, err = m.control(a.ctx, id)
		}
		if err != nil && a.ctx.Err() == nil && m.life.Err() == nil {
			a.fail(a.lost(a.view.Rank(id), err))
		}
	}()
}
