package networktest

import (
	"context"
	"sync"

	"github.com/elrun/elrun/elastic"
)

// mail has the control messages that an endpoint has received, by sender, in order.
type mail struct {
	mu    sync.Mutex
	came  map[elastic.ID][][]byte
	lost  map[elastic.ID]int // number of PeerDown events, by peer
	fresh chan struct{}      // closed and replaced when a message arrives
}

func newMail() *mail {
	return &mail{came: make(map[elastic.ID][][]byte), lost: make(map[elastic.ID]int), fresh: make(chan struct{})}
}

// read handles events until the channel is closed.
func (m *mail) read(events <-chan elastic.PeerEvent) {
	for e := range events {
		m.take(e)
	}
}

// take handles an event.
func (m *mail) take(e elastic.PeerEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e.Kind {
	case elastic.PeerDown:
		m.lost[e.Peer]++
	case elastic.PeerMessage:
		m.came[e.Peer] = append(m.came[e.Peer], e.Data)
		close(m.fresh)
		m.fresh = make(chan struct{})
	}
}

// losses returns the number of PeerDown events about a peer so far.
func (m *mail) losses(peer elastic.ID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lost[peer]
}

// next waits for a message from a sender.
func (m *mail) next(ctx context.Context, from elastic.ID) ([]byte, error) {
	for {
		m.mu.Lock()
		fresh := m.fresh
		if all := m.came[from]; len(all) > 0 {
			m.came[from] = all[1:]
			m.mu.Unlock()
			return all[0], nil
		}
		m.mu.Unlock()
		select {
		case <-fresh:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
