package timeline

import (
	"cmp"
	"slices"
)

// Merge combines the snapshots of several elruns of one job: the job's own figures are those of the snapshot
// that is farthest, and each peer is taken from the elrun that has heard it. Messages, and what a snapshot
// lacks, are added up. Series, Coverage and Counts are those of the farthest one, as the figures of the job
// are equal at all elruns. Merge returns a zero Snapshot for none. It shares memory with its arguments.
func Merge(all ...Snapshot) Snapshot {
	if len(all) == 0 {
		return Snapshot{}
	}
	out := all[0]
	for _, s := range all[1:] {
		if cmp.Or(cmp.Compare(s.Epoch, out.Epoch), cmp.Compare(s.Step, out.Step)) > 0 {
			out = s
		}
	}
	out.Peers, out.Messages, out.Former, out.Seq = nil, nil, Former{}, 0
	at := map[string]int{} // index in out.Peers by ID
	for _, s := range all {
		out.Seq += s.Seq
		out.Former.Peers += s.Former.Peers
		out.Former.Uses.add(s.Former.Uses)
		out.Messages = append(out.Messages, s.Messages...)
		if !s.Begin.IsZero() && (out.Begin.IsZero() || s.Begin.Before(out.Begin)) {
			out.Begin = s.Begin
		}
		if s.Time.After(out.Time) {
			out.Time = s.Time
		}
		for _, p := range s.Peers {
			take(&out, p, at)
		}
	}
	slices.SortStableFunc(out.Messages, func(a, b Message) int { return a.Time.Compare(b.Time) })
	out.Lacks.Unheard = 0
	for _, p := range out.Peers {
		if p.Rank >= 0 && !p.Heard {
			out.Lacks.Unheard++
		}
	}
	out.Goodput = out.goodput()
	return out
}

// take adds to s a peer of another snapshot, or what that one knows more of a peer. at has the indices of the peers by
// their IDs.
func take(s *Snapshot, p Peer, at map[string]int) {
	ids := append(slices.Clone(p.IDs), p.ID)
	i := len(s.Peers)
	for _, id := range ids {
		if known, ok := at[id]; ok {
			i = known
		}
	}
	for _, id := range ids {
		at[id] = i
	}
	if i == len(s.Peers) {
		s.Peers = append(s.Peers, p)
		return
	}
	waited := p.WaitedFor.plus(s.Peers[i].WaitedFor)
	if p.Heard && !s.Peers[i].Heard {
		s.Peers[i] = p
	}
	s.Peers[i].WaitedFor = waited
}
