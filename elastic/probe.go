package elastic

import (
	"slices"
	"time"
)

// askFor probes a silent member, directly and through helpers.
func (w *watcher) askFor(id ID, p *peer) {
	w.heartbeats.send(id, true)
	if p.helped == nil {
		p.helped = make(map[ID]bool)
	}
	for _, h := range w.members.helpersFor(id) {
		if _, asked := p.helped[h]; !asked {
			p.helped[h] = false
		}
		w.out.send(h, probeMessage{About: id}.append(controlProbe, nil))
	}
}

// maxAskers bounds the number of members that get a message when a probed member has answered.
const maxAskers = 16

// receiveProbe handles a request for an indirect probe, or a helper's answer.
func (w *watcher) receiveProbe(from ID, kind controlKind, q probeMessage) {
	p := w.members.peerOf(q.About)
	// Probes are for members of the present view only.
	if p == nil || w.members.peerOf(from) == nil || q.About == from {
		return
	}
	if kind == controlProbe {
		if len(p.askers) < maxAskers && !slices.Contains(p.askers, from) {
			p.askers = append(p.askers, from)
		}
		w.heartbeats.send(q.About, true)
		// This reply shows that the helper has the request. A second reply follows when the probed
		// member has answered.
		w.out.send(from, probeMessage{About: q.About}.append(controlProbeReply, nil))
		return
	}
	// An unrequested reply must not vouch for a silent member.
	if _, asked := p.helped[from]; !asked {
		return
	}
	p.helped[from] = true
	if q.Heard {
		p.vouch(time.Now())
	}
}

// vouchFor reports to the members that asked for an indirect probe that the probed member has
// answered this peer. Other messages of the probed member do not count, because a member that
// receives nothing also sends them.
func (w *watcher) vouchFor(id ID, p *peer) {
	for _, asker := range p.askers {
		w.out.send(asker, probeMessage{About: id, Heard: true}.append(controlProbeReply, nil))
	}
	p.askers = nil
}
