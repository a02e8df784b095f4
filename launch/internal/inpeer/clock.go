package inpeer

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/pause"
)

// clockRequest is a request of a member for the time of this host, in nanoseconds since 1970, as 8 bytes. It is another one than
// those of package elastic.
const clockRequest = 'c'

const (
	// clockPeriod is the time between two comparisons with a member, and clockLook the time between two looks for new ones.
	clockPeriod = time.Minute
	clockLook   = 2 * time.Second
	// clockRounds is the number of exchanges of a comparison, and clockPatience bounds one.
	clockRounds   = 8
	clockPatience = time.Second
)

// compareClocks compares the clock of this host with those of the other hosts, at first sight and then once a minute, until ctx
// ends. Of the peers of a launcher only the first member in rank order does it.
func (p *peer) compareClocks(ctx context.Context) {
	compared := make(map[elastic.ID]time.Time)
	for pause.For(ctx, clockLook) == nil {
		p.mu.Lock()
		members, id := p.latest.Members, p.id
		p.mu.Unlock()
		self := id.ep.Self.ID
		if first := slices.IndexFunc(members, func(m elastic.Member) bool { return m.Launcher == p.order.Launcher }); first < 0 || members[first].ID != self {
			continue
		}
		for _, m := range otherHosts(members, self) {
			if at, is := compared[m.ID]; is && time.Since(at) < clockPeriod {
				continue
			}
			compared[m.ID] = time.Now()
			if c, ok := compareClock(ctx, m.ID, id.Request); ok {
				p.a.Emit(event.Event{Time: time.Now(), Peer: self.Short(), Index: p.env.Index, Body: c})
			}
		}
	}
}

// otherHosts returns the first member of each host but that of self.
func otherHosts(members []elastic.Member, self elastic.ID) (first []elastic.Member) {
	seen := slices.DeleteFunc(slices.Clone(members), func(m elastic.Member) bool { return m.ID != self })
	for _, m := range members {
		if m.ID != self && !slices.ContainsFunc(seen, m.Beside) {
			seen, first = append(seen, m), append(first, m)
		}
	}
	return first
}

// compareClock compares this host's clock with that of a member, by the exchange with the shortest round trip. It returns
// false if the member does not answer.
func compareClock(ctx context.Context, with elastic.ID, request func(context.Context, elastic.ID, []byte) (io.ReadCloser, error)) (event.Clock, bool) {
	best, ok := event.Clock{Who: with.Short()}, false
	for range clockRounds {
		begun := time.Now()
		theirs, err := askClock(ctx, with, request)
		took := time.Since(begun)
		if err != nil {
			return best, ok
		}
		if half := took.Seconds() * 500; !ok || half < best.ErrorMS {
			best.OffsetMS, best.ErrorMS, ok = theirs.Sub(begun.Add(took/2)).Seconds()*1000, half, true
		}
	}
	return best, ok
}

// askClock asks a member for its time.
func askClock(ctx context.Context, of elastic.ID, request func(context.Context, elastic.ID, []byte) (io.ReadCloser, error)) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, clockPatience)
	defer cancel()
	answer, err := request(ctx, of, []byte{clockRequest})
	if err != nil {
		return time.Time{}, err
	}
	defer answer.Close()
	var b [8]byte
	if _, err := io.ReadFull(answer, b[:]); err != nil {
		return time.Time{}, fmt.Errorf("read the time of %s: %w", of.Short(), err)
	}
	return time.Unix(0, int64(binary.LittleEndian.Uint64(b[:]))), nil
}
