package elastic

import (
	"cmp"
	"slices"
	"time"
)

// askFor asks a member for a word, directly and through helpers.
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

// helpersFor returns the members to ask about another one: of those that this member
// watches, and hears, the next to it in rank order.
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

// hears reports whether a member owes this one no word.
func (k *keeper) hears(id ID) bool {
	p := k.peers[id]
	return p != nil && p.spoke && p.suspected == "" && p.asked.IsZero()
}

// wellHelped reports whether one of those that were asked about a member has answered, if
// any of them can be counted on. If none has it is this member that is not heard, or that
// does not come to hear the answers.
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

// maxAskers bounds who is told of the next word of a member.
const maxAskers = 16

// takeProbe takes in a question about a member, or the answer to one.
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

// vouchFor tells those that have asked about a member that it has said a word.
func (k *keeper) vouchFor(id ID, p *peer) {
	for _, asker := range p.askers {
		k.out.send(asker, probing{About: id, Heard: true}.append(letterProbed, nil))
	}
	p.askers = nil
}
