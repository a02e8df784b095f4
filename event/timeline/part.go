package timeline

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Part is what an elrun tells another one of the job: its own peers, and how long these have waited for others. Its
// encoded form may need several pages.
type Part struct {
	Former Former `json:"former"` // in the first page
	Peers  []Peer `json:"peers"`
	// Next is where the next page begins; 0 if this is the last one.
	Next int `json:"next,omitempty"`
}

const (
	// MaxPart bounds an encoded page in bytes.
	MaxPart = 4 << 10
	// maxPartText bounds the text of a page.
	maxPartText = 1 << 20
	// maxPartPeers bounds the peers of a page.
	maxPartPeers = 1 << 10
	// maxPartTime bounds a time that another elrun tells.
	maxPartTime = 10 * 365 * 24 * time.Hour
)

// EncodePart returns the page of what s tells that begins with the peer of an index, as another page or 0 says. It has
// as many peers as fit, and leaves out a peer that does not fit alone.
func EncodePart(s Snapshot, from int) []byte {
	p := Part{}
	if from = min(max(0, from), len(s.Peers)); from == 0 {
		p.Former = s.Former
	}
	for n := min(len(s.Peers)-from, maxPartPeers); ; n /= 2 {
		p.Peers = nil
		for _, peer := range s.Peers[from : from+n] {
			if told, ok := peer.told(); ok {
				p.Peers = append(p.Peers, told)
			}
		}
		p.Next = 0
		if end := from + max(1, n); end < len(s.Peers) {
			p.Next = end
		}
		if b := p.encode(); n == 0 || len(b) <= MaxPart {
			return b
		}
	}
}

// told returns what is told to another elrun of a peer, and false for nothing: all of an own peer, and the waits for
// another one.
func (p Peer) told() (Peer, bool) {
	if p.Heard {
		return p, true
	}
	return Peer{ID: p.ID, IDs: p.IDs, Index: -1, Rank: -1, WaitedFor: p.WaitedFor}, p.WaitedFor != Waited{}
}

// encode compresses the JSON form of a page.
func (p Part) encode() []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestSpeed) // the level is valid
	_ = json.NewEncoder(w).Encode(p)             // all numbers are finite, and the buffer takes everything
	_ = w.Close()
	return b.Bytes()
}

// DecodePart decodes a page of the launcher with a name. A launcher tells of its own peers: of others the result has
// only how long they were waited for.
func DecodePart(b []byte, launcher string) (Part, error) {
	r := flate.NewReader(bytes.NewReader(b))
	text, err := io.ReadAll(io.LimitReader(r, maxPartText+1))
	if err == nil && len(text) > maxPartText {
		err = fmt.Errorf("its text has more than %d bytes", maxPartText)
	}
	var p Part
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return Part{}, fmt.Errorf("timeline: decode a part: %w", err)
	}
	p.Peers = p.Peers[:min(len(p.Peers), maxPartPeers)]
	p.Former.Peers, p.Next = bounded(p.Former.Peers), bounded(p.Next)
	p.Former.Uses.sane()
	for i, peer := range p.Peers {
		if peer.Launcher != launcher {
			peer.Heard = false
			peer, _ = peer.told()
		}
		peer.sane()
		p.Peers[i] = peer
	}
	return p, nil
}

// sane makes times of another elrun usable: none is negative, and sums of them stay in range.
func (u *Uses) sane() {
	for i := range u {
		u[i] = saneTime(u[i])
	}
}

// saneTime bounds a time.
func saneTime(d time.Duration) time.Duration { return min(max(0, d), maxPartTime) }

// sane bounds what another elrun tells of a peer.
func (p *Peer) sane() {
	p.ID, p.Host, p.Machine, p.Site, p.Launcher = clip(p.ID), clip(p.Host), clip(p.Machine), clip(p.Site), clip(p.Launcher)
	p.Strip.Uses = p.Strip.Uses[:min(len(p.Strip.Uses), stripIntervals)]
	p.State, p.Path, p.Cause, p.Reason = clip(p.State), clip(p.Path), clip(p.Cause), clip(p.Reason)
	p.IDs = slices.Clone(p.IDs[:min(len(p.IDs), maxIDs)])
	for i := range p.IDs {
		p.IDs[i] = clip(p.IDs[i])
	}
	if len(p.Links) > maxMembers {
		p.Links = nil
	}
	p.Uses.sane()
	p.WaitedFor = Waited{saneTime(p.WaitedFor.Computing), saneTime(p.WaitedFor.Call), saneTime(p.WaitedFor.Absent)}
	p.Share, p.PID = bounded(p.Share), bounded(p.PID)
	p.Index, p.Rank = max(-1, p.Index), max(-1, p.Rank)
	p.ParkedMS, p.LengthMS = max(0, p.ParkedMS), max(0, p.LengthMS)
	p.Steps, p.Samples, p.RSS = max(0, p.Steps), max(0, p.Samples), max(0, p.RSS)
	p.Begin, p.End = instantOf(p.Begin).time(), instantOf(p.End).time()
}
