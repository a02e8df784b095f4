package launch

import (
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/spec"
)

// status returns the Status for the control socket: the figures of this peer and its knowledge of
// the other members. Each other peer of this host reports its own figures on its own socket.
func (p *peer) status() spec.Status {
	p.mu.Lock()
	members, g := p.latest.Members, p.group
	p.mu.Unlock()
	// A peer that has not joined yet has no group, and so has heard from nobody.
	var heard map[elastic.ID]time.Duration
	if g != nil {
		heard = g.Admin().Heard()
	}
	return describeOthers(p.a.status(), members, heard)
}

// describeOthers completes the entries of s without a report of their own, from members and heard.
func describeOthers(s spec.Status, members []elastic.Member, heard map[elastic.ID]time.Duration) spec.Status {
	for i := range s.Members {
		m := &s.Members[i]
		if m.State != spec.StateUnknown {
			continue
		}
		if b := s.Balanced; b != nil && len(b.Shares) == len(s.Members) {
			m.Share = b.Shares[i] // shares and members are both in rank order
		}
		// Status has short IDs only, as events have; members has the whole IDs.
		k := slices.IndexFunc(members, func(e elastic.Member) bool { return e.ID.Short() == m.ID })
		if k < 0 {
			continue
		}
		m.Host, m.Machine, m.Site, m.Index = members[k].Host, members[k].Machine, members[k].Site, members[k].Index
		if silent, ok := heard[members[k].ID]; ok {
			m.SeenMS = float64(silent) / float64(time.Millisecond)
		}
	}
	return s
}
