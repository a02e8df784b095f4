package launch

import (
	"cmp"
	"fmt"
	"time"

	"github.com/elrun/elrun/event"
)

// stalls decides which stall events become lines for people: one for each culprit, as
// long as it holds up the others, whoever reports that and however often. It is pure and
// not safe for concurrent use.
type stalls struct {
	culprits map[string]*culprit // by short ID
}

// culprit is a member that others wait for.
type culprit struct {
	told  time.Time // when people were told last
	heard time.Time // when the last report came
}

// stallPause is the least time between two lines about one culprit that holds up the
// others again and again.
const stallPause = time.Minute

// line words e, a stall seen by peer index, or returns "" where nothing new is to be
// said. It names those culprits only that people have not been told of. who turns short
// IDs into words.
func (s *stalls) line(index int, e event.Stall, now time.Time, who func(string) string) string {
	begun := now.Add(-time.Duration(e.SinceMS * float64(time.Millisecond)))
	var fresh []string
	for _, id := range splitIDs(e.Culprit) {
		if s.fresh(id, begun, now) {
			fresh = append(fresh, id)
		}
	}
	if len(fresh) == 0 {
		return ""
	}
	line := fmt.Sprintf("peer %d has waited %.1f s for %s in %s", index, e.SinceMS/1000, who(join(fresh)), cmp.Or(e.What, e.Phase))
	if e.What != "" && e.Phase != "" {
		line += " (" + e.Phase + ")"
	}
	return line
}

// fresh notes a report that a member has held up another one since begun, and reports
// whether that is news: the first report of all, or, a good while after people were
// told of it, of a stall that is not the one reported last.
func (s *stalls) fresh(id string, begun, now time.Time) bool {
	if s.culprits == nil || len(s.culprits) > maxSaid {
		s.culprits = make(map[string]*culprit)
	}
	c := s.culprits[id]
	if c == nil {
		s.culprits[id] = &culprit{told: now, heard: now}
		return true
	}
	news := begun.After(c.heard) && now.Sub(c.told) >= stallPause
	c.heard = now
	if news {
		c.told = now
	}
	return news
}
