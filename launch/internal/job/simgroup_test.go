package job_test

import (
	"fmt"
	"slices"

	"github.com/elrun/elrun/launch/internal/job"
)

// group is what the membership protocol does, in a simple form: losses, leaves, admissions, steps.
type group struct {
	n, step, blocked, program int
	members                   []*peer
	entered                   map[*peer]bool
	known                     map[job.ID]bool // certain deaths
	ids                       map[*peer]job.ID
	sole                      bool // all members have belonged to one launcher
	over, mistake             bool
}

// enter puts p into the group of a first view.
func (w *world) enter(p *peer, first job.First) {
	var g *group
	for _, x := range w.groups {
		if !x.over && !x.entered[p] && slices.Contains(x.members, p) && x.ids[p] == p.id {
			g = x
		}
	}
	if g == nil {
		g = w.form(p, first)
	}
	g.entered[p] = true
	p.state, p.g = member, g
	w.report(p)
}

// form makes the group of a first view.
func (w *world) form(p *peer, first job.First) *group {
	g := &group{n: len(w.groups) + 1, program: p.program, entered: map[*peer]bool{}, known: map[job.ID]bool{}, ids: map[*peer]job.ID{}, sole: true}
	for _, q := range w.procs {
		if slices.Contains(first.Members, q.id) {
			g.members, g.ids[q] = append(g.members, q), q.id
		}
	}
	for _, x := range w.groups {
		for _, q := range x.members {
			if q.g == x && q.state == member && !x.over {
				w.fail("split: a new first view while %s is a member of the old group", q.id)
			}
		}
	}
	w.groups = append(w.groups, g)
	w.after(5, func() { w.move(g) })
	return g
}

// report tells the launcher of p the view of p.
func (w *world) report(p *peer) {
	var ids []job.ID
	for _, q := range p.g.members {
		ids = append(ids, p.g.ids[q])
	}
	w.send(p, job.View{Seat: p.seat, Members: ids})
}

// move moves a group on.
func (w *world) move(g *group) {
	if g.over {
		return
	}
	defer w.after(5, func() { w.move(g) })
	live := slices.DeleteFunc(slices.Clone(g.members), func(p *peer) bool { return p.dead() || p.id != g.ids[p] || p.g != g && g.entered[p] })
	if len(live) == 0 {
		g.over = true
		return
	}
	if w.held(g, live) {
		return
	}
	if len(live) < len(g.members) && !w.lose(g, live) {
		return
	}
	g.blocked = 0
	w.part(g, live)
	if len(g.members) == 0 {
		g.over = true
		return
	}
	w.admit(g)
	if w.killMembers && len(g.members) > len(live) {
		w.killMembers = false
		for _, p := range live {
			w.kill(p)
		}
		return
	}
	if g.step++; g.step >= w.p.steps {
		w.finish(g)
	}
}

// held tells whether a member holds up the others, and lets these say so.
func (w *world) held(g *group, live []*peer) bool {
	held := false
	for _, p := range live {
		held = held || p.stopped || !g.entered[p] || p.erring
		if !p.stopped {
			continue
		}
		if slices.ContainsFunc(live, func(q *peer) bool { return q != p && q.l == p.l && !q.stopped }) {
			w.step(p.l, job.Suspect{Who: p.id})
		}
	}
	return held
}

// lose puts out the dead members if the quorum allows it. After 30 s without a quorum all give up.
func (w *world) lose(g *group, live []*peer) bool {
	certain := true
	for _, p := range g.members {
		certain = certain && (slices.Contains(live, p) || g.known[g.ids[p]])
	}
	n := len(g.members)
	half := len(live)*2 == n && !g.sole
	if len(live)*2 > n && !g.sole || certain && half || g.sole && certain {
		g.members = live
		for _, p := range live {
			w.report(p)
		}
		return true
	}
	if g.blocked == 0 {
		g.blocked = w.now
	}
	if w.now-g.blocked > 300 {
		w.gaveUp = true
		w.halfGaveUp = w.halfGaveUp || half
		for _, p := range live {
			w.exit(p, job.StatusGaveUp, 0)
		}
	}
	return false
}

// part lets the members leave that were asked.
func (w *world) part(g *group, live []*peer) {
	for _, p := range live {
		if !p.termed {
			continue
		}
		g.members = slices.DeleteFunc(slices.Clone(g.members), func(q *peer) bool { return q == p })
		w.send(p, job.Leave{Who: p.id})
		p.state = closing
		w.after(1+w.pick(3, 5, p.pid), func() { w.exit(p, 0, 0) })
	}
}

// admit admits the newcomers. A member may die between the decision and its report.
func (w *world) admit(g *group) {
	for _, p := range w.procs {
		if p.state != joining || p.program != g.program || p.stopped || w.now-p.since <= 5 {
			continue
		}
		if p.l != g.members[0].l && g.sole {
			g.sole = false
			for _, q := range g.members { // before the admission
				w.send(q, job.Foreign{})
			}
		}
		p.state, p.g = member, g
		g.members, g.entered[p], g.ids[p] = append(g.members, p), true, p.id
		for _, q := range g.members {
			w.after(w.pick(4, 10, q.pid, w.now), func() {
				if q.g == g && q.id == g.ids[q] && (q.state == member || q.state == closing && !q.done) {
					w.report(q)
				}
			})
		}
	}
}

// finish ends a group at the last step.
func (w *world) finish(g *group) {
	g.over = true
	for _, p := range g.members {
		p.state = closing
		w.after(w.pick(6, 6, p.pid), func() {
			w.awake(p, func() {
				if p.state != closing {
					return
				}
				if p.done = true; w.p.silent {
					w.send(p, job.Closed{Seat: p.seat})
				} else {
					w.send(p, job.Done{Seat: p.seat, Digest: "sha256"})
				}
			})
		})
		w.after(7+w.pick(15, 7, p.pid), func() {
			w.awake(p, func() {
				switch {
				case p.state != closing:
				case p.spoils:
					p.root, p.spoiled = true, p.done
					p.l.roots++
					w.exit(p, 1, 0)
				default:
					w.exit(p, 0, 0)
				}
			})
		})
	}
}

// err ends the loop of a group by an error that names m. One member may miss it.
func (w *world) err(g *group, m *peer, panics, missed bool) {
	m.root = true
	m.l.roots++
	lucky := g.members[w.pick(len(g.members), 8)]
	who := m.id
	for _, p := range slices.Clone(g.members) {
		switch {
		case p.state != member, missed && p == lucky && p != m:
		case p == m && panics:
			w.exit(p, 2, 0)
		default:
			g.mistake, p.erring, p.state = true, true, closing
			found := job.Mistake{Seat: p.seat, Who: who}
			if p == m { // its error names nobody
				found.Who = ""
			}
			w.send(p, found)
			w.after(1+w.pick(6, 9, p.pid), func() { w.exit(p, 1, 0) })
		}
	}
}

// fence gives a member another ID. The others have decided to go on without it.
func (w *world) fence(p *peer) {
	w.putOut(p)
	p.renewals++
	p.g, p.state, p.since = nil, joining, w.now
	p.id = job.ID(fmt.Sprintf("%d.%d.%d", p.pid, p.program, p.renewals))
	w.send(p, job.Renew{Seat: p.seat, ID: p.id})
	w.after(20, func() { w.lookout(p) })
}

// kick puts p out for good: each member says so, and p ends.
func (w *world) kick(p *peer, status int) {
	for _, q := range w.putOut(p) {
		if q.l == p.l {
			w.send(q, job.Leave{Who: p.id, Kicked: true})
		}
	}
	w.send(p, job.Leave{Who: p.id, Kicked: true})
	p.state = closing
	w.after(1+w.pick(60, 12, p.pid), func() { w.awake(p, func() { w.exit(p, status, 0) }) })
}

// putOut takes p out of its group, and returns the members that have seen it.
func (w *world) putOut(p *peer) (out []*peer) {
	g := p.g
	g.members = slices.DeleteFunc(slices.Clone(g.members), func(q *peer) bool { return q == p })
	for _, q := range g.members {
		if q.state == member && q.g == g {
			w.report(q)
			out = append(out, q)
		}
	}
	return out
}

// fenceable tells whether the others of the group of p can go on without p.
func (w *world) fenceable(p *peer) bool {
	if p.g == nil || p.g.over || p.id != p.g.ids[p] || p.stopped || p.termed || p.erring {
		return false
	}
	awake := 0
	for _, q := range p.g.members {
		if q.state == member && q.g == p.g && !q.stopped {
			awake++
		}
	}
	return (awake-1)*2 > len(p.g.members)
}
