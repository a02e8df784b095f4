package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Goodput is how much of the peers' time was useful, and what the rest was spent on.
type Goodput struct {
	Ratio  float64 `json:"ratio"`   // useful part of the peer-time, from 0 to 1
	Peers  int     `json:"peers"`   // processes with time of their own
	WallMS float64 `json:"wall_ms"` // from the begin of the first to the end of the last
	PeerMS float64 `json:"peer_ms"` // the sum over Uses
	Uses   Uses    `json:"uses"`
	// Straggler is the peer for which others have waited longest while it computed; nil if there is none.
	Straggler *Straggler `json:"straggler,omitempty"`
}

// goodput sums up the peers of a snapshot.
func (s Snapshot) goodput() Goodput {
	g := Goodput{Uses: s.Former.Uses, Peers: s.Former.Peers}
	begin, end := time.Time{}, time.Time{}
	type seat struct {
		launcher, id string
		index        int
	}
	seats := make(map[seat]bool)
	for _, p := range s.Peers {
		g.Uses.add(p.Uses)
		if p.Begin.IsZero() {
			continue
		}
		at := seat{launcher: p.Launcher, index: p.Index}
		if p.Launcher == "" {
			at.id = p.ID
		}
		if !seats[at] {
			seats[at] = true
			g.Peers++
		}
		if begin.IsZero() || p.Begin.Before(begin) {
			begin = p.Begin
		}
		if p.End.After(end) {
			end = p.End
		}
	}
	if g.Peers > s.Former.Peers {
		g.WallMS = milliseconds(end.Sub(begin))
	}
	g.PeerMS, g.Ratio = milliseconds(g.Uses.Total()), g.Uses.Goodput()
	if list := s.Stragglers(); len(list) > 0 {
		g.Straggler = &list[0]
	}
	return g
}

// maxLine bounds the line for people.
const maxLine = 190

// Line returns a line for people without a line end, at most 190 bytes long, as in
//
//	goodput 84 % of 3 peers' 1m14s: waiting 9 % (6 % for peer 2 on lab3), communication 4 %, changes 1.4 s
//
// It has the uses that matter, the longest first: those of each step in percent of the peers' time, and those
// that happen now and then in seconds, summed over the peers. It is "" if no time is known.
func (g Goodput) Line() string {
	total := g.Uses.Total()
	if total <= 0 || g.Peers == 0 {
		return ""
	}
	peers := "1 peer's"
	if g.Peers > 1 {
		peers = fmt.Sprintf("%d peers'", g.Peers)
	}
	line := fmt.Sprintf("goodput %.0f %% of %s %s", 100*g.Ratio, peers, wall(g.WallMS))
	separator := ": "
	for _, u := range g.longest() {
		text := g.part(u, total)
		if text == "" {
			continue
		}
		if len(line)+len(separator)+len(text) > maxLine {
			break
		}
		line += separator + text
		separator = ", "
	}
	return line
}

// wall formats the duration of a job.
func wall(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// longest returns the uses that are not useful, the longest first.
func (g Goodput) longest() (list []Use) {
	for u := Useful + 1; int(u) < uses; u++ {
		list = append(list, u)
	}
	slices.SortStableFunc(list, func(a, b Use) int { return cmp.Compare(g.Uses[b], g.Uses[a]) })
	return list
}

// part returns what the line says of a use; "" if it does not matter.
func (g Goodput) part(u Use, total time.Duration) string {
	name := [uses]string{"", "data", "waiting", "communication", "update", "computing twice", "changes", "catching up", "stalls",
		"evaluation", "checkpoints", "start", "other"}[u]
	d := g.Uses[u]
	percent := 100 * float64(d) / float64(total)
	switch u {
	case Recompute, Change, CatchUp, Stalled, Start:
		if d < 100*time.Millisecond {
			return ""
		}
		return fmt.Sprintf("%s %s", name, wall(milliseconds(d)))
	case Wait:
		if percent < 1 {
			return ""
		}
		return fmt.Sprintf("%s %.0f %%%s", name, percent, g.blame(total))
	}
	if percent < 1 {
		return ""
	}
	return fmt.Sprintf("%s %.0f %%", name, percent)
}

// maxHost bounds the name of a host in the line.
const maxHost = 24

// blame names the peer for which the others have waited longest, if it stands out.
func (g Goodput) blame(total time.Duration) string {
	s := g.Straggler
	if s == nil {
		return ""
	}
	percent := 100 * float64(s.Waited.Computing) / float64(total)
	// If all were alike, each of them would be waited for equally long.
	if fair := float64(g.Uses[Wait]) / float64(g.Peers); percent < 1 || float64(s.Waited.Computing) < 1.5*fair {
		return ""
	}
	who := "peer " + s.ID[:min(len(s.ID), maxHost)]
	if s.Index >= 0 {
		who = fmt.Sprintf("peer %d", s.Index)
	}
	if s.Host != "" {
		who += " on " + s.Host[:min(len(s.Host), maxHost)]
	}
	return fmt.Sprintf(" (%.0f %% for %s)", percent, who)
}
