package timeline

import (
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/event"
)

// maxPeers bounds the processes that are remembered. If there are more, those that were not heard of for
// longest become one sum.
const maxPeers = 1024

// maxIDs bounds the IDs that are remembered of a process.
const maxIDs = 8

// peers has all processes of a job, and knows them by their IDs.
type peers struct {
	rows   []*row // in the order in which they became known
	ids    map[string]*identity
	former Former
}

// Former is the sum over processes that are not remembered any more.
type Former struct {
	Peers int  `json:"peers,omitempty"`
	Uses  Uses `json:"uses"`
}

// identity is one ID of a process. Steps are counted for each ID: a process that was put out may make
// a step again with another ID.
type identity struct {
	row  *row
	step int64 // of the last step event
}

// of returns the process with an ID, which becomes known if it is not. index is -1 if it is unknown.
func (p *peers) of(id string, index int) *identity {
	if i, ok := p.ids[id]; ok {
		if i.row.index < 0 {
			i.row.index = index
		}
		return i
	}
	if r := p.renewed("", index); r != nil {
		return p.name(r, id)
	}
	return p.name(p.add(index), id)
}

// renewed returns the process at an index that was put out and goes on, so that it has a new ID, if there is
// just one. launcher is "" if it is unknown.
func (p *peers) renewed(launcher string, index int) (found *row) {
	for _, r := range p.rows {
		if !r.catching || r.ended() || r.index != index || index < 0 || launcher != "" && r.launcher != launcher {
			continue
		}
		if found != nil {
			return nil
		}
		found = r
	}
	return found
}

// add adds a process.
func (p *peers) add(index int) *row {
	if len(p.rows) >= maxPeers {
		p.forget()
	}
	r := &row{index: index, rank: -1, state: StateJoining, saved: -1}
	p.rows = append(p.rows, r)
	return r
}

// forget adds the process that was not heard of for longest to the sum.
func (p *peers) forget() {
	oldest := 0
	for i, r := range p.rows {
		if r.sign < p.rows[oldest].sign {
			oldest = i
		}
	}
	r := p.rows[oldest]
	p.rows = slices.Delete(p.rows, oldest, oldest+1)
	p.former.Peers++
	p.former.Uses.add(r.uses)
	for _, id := range r.ids {
		delete(p.ids, id)
	}
}

// name gives a process one more ID.
func (p *peers) name(r *row, id string) *identity {
	if len(r.ids) == maxIDs {
		delete(p.ids, r.ids[0])
		r.ids = slices.Delete(r.ids, 0, 1)
	}
	r.ids = append(r.ids, id)
	i := &identity{row: r}
	p.ids[id] = i
	return i
}

// describe takes over what an event says of a process. own is set if its launcher says it.
func (p *peers) describe(m event.Member, own bool, at instant) {
	i, known := p.ids[m.Who]
	if !known {
		r := p.process(m)
		if r == nil {
			r = p.add(m.WhoIndex)
		}
		i = p.name(r, m.Who)
	}
	r := i.row
	if r.about.PID != 0 && m.PID == 0 { // others know less of it than its launcher
		return
	}
	r.launcher, r.index, r.about = m.Launcher, m.WhoIndex, m
	if !own {
		return
	}
	r.starts(instantOf(m.Began))
	if r.hello == 0 {
		r.hello = at
	}
}

// process returns the process that an event with a new ID describes, if it is known by another ID.
func (p *peers) process(m event.Member) *row {
	if m.Launcher == "" {
		return nil
	}
	for _, r := range slices.Backward(p.rows) {
		if r.launcher == m.Launcher && r.index == m.WhoIndex && m.PID != 0 && r.about.PID == m.PID && r.exit == nil {
			return r
		}
	}
	return p.renewed(m.Launcher, m.WhoIndex)
}

// charge adds time for which others have waited to the peers that held them up. Several culprits share it.
func (p *peers) charge(charges []charge) {
	for _, c := range charges {
		if c.culprit == "" || c.time == 0 {
			continue
		}
		culprits := strings.Split(c.culprit, ",")
		for _, id := range culprits[:min(len(culprits), maxHolds)] {
			p.of(id, -1).row.waitedFor.add(c.why, c.time/time.Duration(len(culprits)))
		}
	}
}
