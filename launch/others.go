package launch

import (
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
)

// status is what the control socket reports: the peer's own figures, and of the other members what
// it knows of them. Those of this host tell more themselves when they are asked.
func (p *peer) status() Status {
	p.mu.Lock()
	members, g := p.latest.Members, p.group
	p.mu.Unlock()
	var heard map[elastic.ID]time.Duration
	if g != nil {
		heard = g.Heard()
	}
	return describeOthers(p.a.status(), members, heard)
}

// describeOthers fills in what members and heard tell of those that have not reported themselves.
func describeOthers(s Status, members []elastic.Member, heard map[elastic.ID]time.Duration) Status {
	for i := range s.Members {
		m := &s.Members[i]
		if m.State != stateUnknown {
			continue
		}
		if b := s.Balanced; b != nil && len(b.Shares) == len(s.Members) {
			m.Share = b.Shares[i] // in rank order, as all are in the view
		}
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
