package elastic

import (
	"cmp"
	"slices"
	"time"
)

// askFor probes a silent member, directly and through helpers.
func (d *driver) askFor(id ID, p *peer) {
	d.sendHeartbeat(id, true)
	if p.helped == nil {
		p.helped = make(map[ID]bool)
	}
	for _, h := range d.helpersFor(id) {
		if _, asked := p.helped[h]; !asked {
			p.helped[h] = false
		}
		d.out.send(h, probeMessage{About: id}.append(controlProbe, nil))
	}
}

// helpersFor returns the helpers for an indirect probe of a member: of the members that this one
// watches and hears, the nearest to the probed member in rank order.
func (d *driver) helpersFor(id ID) []ID {
	n, at := len(d.view.Members), d.view.Rank(id)
	ids := slices.DeleteFunc(slices.Clone(d.watched()), func(h ID) bool { return h == id || !d.hears(h) })
	distance := func(h ID) int {
		ranks := (d.view.Rank(h) - at + n) % n
		return min(ranks, n-ranks)
	}
	slices.SortStableFunc(ids, func(a, b ID) int { return cmp.Compare(distance(a), distance(b)) })
	return ids[:min(len(ids), helpers)]
}

// hears reports whether another member has spoken, is not suspected, and owes this one no answer.
func (d *driver) hears(id ID) bool {
	p := d.peers[id]
	return p != nil && p.spoke && p.suspected == "" && p.asked.IsZero()
}

// wellHelped reports whether the missing answer of a probed member is its own failure: a helper has
// answered, or no helper can be relied on. If reliable helpers are silent, too, this member itself
// is not heard, or does not process the answers in time.
func (d *driver) wellHelped(p *peer) bool {
	none := true
	for h, answered := range p.helped {
		if answered {
			return true
		}
		none = none && !d.hears(h)
	}
	return none
}

// maxAskers bounds the number of members that are told of the next message of a probed member.
const maxAskers = 16

// receiveProbe handles a request for an indirect probe, or a helper's answer.
func (d *driver) receiveProbe(from ID, kind controlKind, q probeMessage) {
	p := d.peerOf(q.About)
	if p == nil || d.peerOf(from) == nil || q.About == from {
		return
	}
	if kind == controlProbe {
		if len(p.askers) < maxAskers && !slices.Contains(p.askers, from) {
			p.askers = append(p.askers, from)
		}
		d.sendHeartbeat(q.About, true)
		d.out.send(from, probeMessage{About: q.About}.append(controlProbeReply, nil))
		return
	}
	if _, asked := p.helped[from]; !asked {
		return
	}
	p.helped[from] = true
	if q.Heard {
		p.vouch(time.Now())
	}
}

// vouchFor reports to the members that asked for an indirect probe that the probed member has
// answered.
func (d *driver) vouchFor(id ID, p *peer) {
	for _, asker := range p.askers {
		d.out.send(asker, probeMessage{About: id, Heard: true}.append(controlProbeReply, nil))
	}
	p.askers = nil
}
