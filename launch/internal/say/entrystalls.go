package say

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/internal/wire"
)

const (
	// entering begins What in the reports of members that wait for others to enter the session of a
	// view.
	entering = "enter epoch "
	// entryPeriod is how long the line about an entry waits for the reports of further peers. It is
	// longer than collectPeriod, because the peers of an overloaded host report at different times.
	entryPeriod = time.Second
)

// entryStall collects reports about members that have not entered the session of a view, to print
// one line about all of them. Each peer of this launcher reports the members that it waits for, so
// without entryStall an overloaded host would get about one line for each peer.
type entryStall struct {
	what     string    // of the reports: names the epoch
	peers    []int     // local indices of the peers that wait
	culprits []string  // short IDs of the members that the peers wait for and no line has named yet
	phase    string    // where the culprits are; "" if the reports differ
	waitedMS float64   // shortest wait
	overload string    // overload of this host at one of the reports, "" without overload
	told     bool      // the line has been printed
	due      time.Time // time of the line; once that is told, the time when another line may follow
}

// collect adds a report of peer index to the line about an entry. It drops the report if that line
// was printed within stallPause, or if all culprits are known.
func (s *Stalls) collect(index int, e event.Stall, now time.Time) {
	var w *entryStall
	if i := slices.IndexFunc(s.entries, func(w *entryStall) bool { return w.what == e.What }); i >= 0 {
		w = s.entries[i]
	}
	// The limit bounds the memory that a peer can use by reports about invented epochs.
	if w != nil && w.told || w == nil && len(s.entries) >= maxReported {
		return
	}
	fresh := s.freshOf(e, now)
	if w == nil {
		if len(fresh) == 0 {
			return
		}
		w = &entryStall{what: e.What, phase: e.Phase, waitedMS: e.SinceMS, due: now.Add(entryPeriod)}
		s.entries = append(s.entries, w)
	}
	w.culprits = append(w.culprits, fresh...)
	// A peer that waits only for members that an earlier line has named does not belong to this
	// line.
	if !slices.ContainsFunc(wire.SplitIDs(e.Culprit), func(id string) bool { return slices.Contains(w.culprits, id) }) {
		return
	}
	if !slices.Contains(w.peers, index) {
		w.peers = append(w.peers, index)
	}
	if e.Phase != w.phase {
		w.phase = ""
	}
	w.waitedMS = min(w.waitedMS, e.SinceMS)
	if w.overload == "" && s.Load != nil {
		w.overload = s.Load()
	}
}

// Due returns the lines about entries that are due at now, or all of them if now is zero. peers is
// the number of this launcher's peers. describe has the same meaning as for line.
func (s *Stalls) Due(now time.Time, peers int, describe func(string) string) []string {
	s.entries = slices.DeleteFunc(s.entries, func(w *entryStall) bool { return w.told && !now.Before(w.due) })
	var lines []string
	for _, w := range s.entries {
		if w.told || !now.IsZero() && now.Before(w.due) {
			continue
		}
		lines = append(lines, s.formatEntry(w, peers, describe))
		w.told, w.due = true, now.Add(stallPause)
	}
	return lines
}

// formatEntry returns the line about an entry. The line about several peers names the culprits only
// if they are few. Members that the line does not name may be named by a later line.
func (s *Stalls) formatEntry(w *entryStall, peers int, describe func(string) string) string {
	names := describe(strings.Join(w.culprits, ","))
	if len(w.peers) == 1 {
		return formatStall(w.peers[0], event.Stall{Phase: w.phase, What: w.what, SinceMS: w.waitedMS}, names)
	}
	if len(w.culprits) <= ShownPeers {
		if line := w.format(peers, names, inBrackets(w.phase)); len(line) <= LineRoom {
			return line
		}
	}
	for _, id := range w.culprits {
		delete(s.culprits, id)
	}
	return w.format(peers, "others", "")
}

// format returns the line about several peers that wait. names are the culprits, and phase tells
// where they are.
func (e *entryStall) format(peers int, names, phase string) string {
	n := len(e.peers)
	line := fmt.Sprintf("%d of %d peers have waited %.1f s for %s to %s%s", n, max(n, peers), e.waitedMS/1000, names, e.what, phase)
	if e.overload != "" {
		line += ": " + e.overload
	}
	return line
}

// ShownPeers bounds the peers that a line names.
const ShownPeers = 3
