package elastic

import (
	"cmp"
	"slices"
	"time"
)

// askFor probes a silent member, directly and through helpers.
func (k *keeper) askFor(id ID, p *peer) {
	k.beatTo(id, true)
	if p.helped == nil {
		p.helped = make(map[ID]bool)
	}
	for _, h := range k.helpersFor(id) {
		if _, asked := p.helped[h]; !asked {
			p.helped[h] = false
		}
		k.out.send(h, probing{About: id}.append(letterProbe, nil))
	}
}

// helpersFor returns the helpers for an indirect probe of a member: of the members that this one
// watches and hears, the nearest to the probed member in rank order.
func (k *keeper) helpersFor(id ID) []ID {
	n, at := len(k.view.Members), k.view.Rank(id)
	ids := slices.DeleteFunc(slices.Clone(k.watched()), func(h ID) bool { return h == id || !k.hears(h) })
	distance := func(h ID) int {
		d := (k.view.Rank(h) - at + n) % n
		return min(d, n-d)
	}
	slices.SortStableFunc(ids, func(a, b ID) int { return cmp.Compare(distance(a), distance(b)) })
	return ids[:min(len(ids), helpers)]
}

// hears reports whether another member has spoken, is not suspected, and owes this one no answer.
func (k *keeper) hears(id ID) bool {
	p := k.peers[id]
	return p != nil && p.spoke && p.suspected == "" && p.asked.IsZero()
}

// wellHelped reports whether the missing answer of a probed member is its own failure: a helper has
// answered, or no helper can be relied on. If reliable helpers are silent, too, this member itself
// is not heard, or does not process the answers in time.
func (k *keeper) wellHelped(p *peer) bool {
	none := true
	for h, answered := range p.helped {
		if answered {
			return true
		}
		none = none && !k.hears(h)
	}
	return none
}

// maxAskers bounds the number of members that are told of the next message of a probed member.
const maxAskers = 16

// takeProbe handles a request for an indirect probe, or a helper's answer.
func (k *keeper) takeProbe(from ID, kind letterKind, q probing) {
	p := k.peerOf(q.About)
	if p == nil || k.peerOf(from) == nil || q.About == from {
		return
	}
	if kind == letterProbe {
		if len(p.askers) < maxAskers && !slices.Contains(p.askers, from) {
			p.askers = append(p.askers, from)
		}
		k.beatTo(q.About, true)
		k.out.send(from, probing{About: q.About}.append(letterProbed, nil))
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
func (k *keeper) vouchFor(id ID, p *peer) {
	for _, asker := range p.askers {
		k.out.send(asker, probing{About: id, Heard: true}.append(letterProbed, nil))
	}
	p.askers = nil
}
