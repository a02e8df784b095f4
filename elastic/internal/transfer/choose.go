package transfer

import (
	"context"
	"slices"
	"time"
)

const (
	firstPause = 50 * time.Millisecond // before what failed is tried again; it doubles
	longPause  = 2 * time.Second
)

// promise is a snapshot that donors have, or will make.
type promise struct {
	step    int64
	donors  []string
	replays bool // updates will follow
}

// chooser finds a snapshot that as many donors as possible can give.
type chooser struct {
	client
	odd      map[string]bool // donors that are not to be asked
	forged   map[string]bool // donors that sent a chunk that the majority does not have
	distance int64           // steps between the furthest donor and the snapshot
	missed   bool            // the last choice came too late
	full     bool            // donors have no memory for another snapshot
}

// choose asks until donors have promised a snapshot, or ctx ends. Each round costs two
// round trips. A joiner has one lease at a donor, so that asking for another step
// takes the demand for the one before back.
func (c *chooser) choose(ctx context.Context) (promise, error) {
	for wait := firstPause; ; wait = min(2*wait, longPause) {
		p, again := c.round(ctx)
		for again && ctx.Err() == nil { // too late: at once, but further ahead
			p, again = c.round(ctx)
		}
		if len(p.donors) > 0 {
			return p, nil
		}
		if err := pause(ctx, wait); err != nil {
			return promise{}, err
		}
	}
}

// round asks once. again says that the step was passed at some donor.
func (c *chooser) round(ctx context.Context) (p promise, again bool) {
	names := slices.DeleteFunc(slices.Clone(c.o.Donors()), func(n string) bool { return c.odd[n] })
	names = names[:min(len(names), c.o.MaxDonors)]
	where := c.gather(ctx, names, request{Do: opWhere})
	names = slices.DeleteFunc(names, func(n string) bool { _, ok := where[n]; return !ok })
	if len(names) == 0 {
		return promise{}, false
	}
	ahead := false
	p.step, p.donors, ahead = c.target(names, where)
	took := c.gather(ctx, p.donors, request{Do: opTake, Step: p.step})
	c.missed, c.full = false, false
	p.donors = slices.DeleteFunc(p.donors, func(n string) bool {
		h, ok := took[n]
		c.missed = c.missed || h.Code == codePast
		c.full = c.full || h.Code == codeFull
		p.replays = p.replays || h.Replays
		return !ok || h.Code != codeOK && h.Code != codePending
	})
	if c.missed {
		if ahead {
			c.distance *= 2
		}
		return promise{}, true
	}
	return p, false
}

// target chooses the step, and the donors that are to be asked for it: one that most
// donors hold already, or one a little ahead of all.
func (c *chooser) target(names []string, where map[string]header) (step int64, donors []string, ahead bool) {
	highest := int64(0)
	var resting []string
	for _, n := range names {
		highest = max(highest, where[n].At)
		if where[n].Resting {
			resting = append(resting, n)
		}
	}
	if len(resting) == len(names) { // nobody will come to a later step
		return highest, names, false
	}
	resting = slices.DeleteFunc(resting, func(n string) bool { return where[n].At < highest })
	if len(resting) > 0 { // as the others wait for them, nobody comes to a later step soon
		return highest, resting, false
	}
	if step, donors := c.shared(names, where); len(donors) > 0 {
		return step, donors, false
	}
	return highest + c.distance, names, true
}

// shared returns the newest snapshot that at least half of the donors hold, and that is
// so recent that replaying the updates since costs much less than copying it. When
// donors have no memory for another one, any will do. After a miss none is looked for.
func (c *chooser) shared(names []string, where map[string]header) (best int64, donors []string) {
	if c.missed {
		return 0, nil
	}
	holders := map[int64][]string{}
	for _, n := range names {
		for _, s := range where[n].Held {
			if c.full || s.Behind <= where[n].Bytes/4 {
				holders[s.Step] = append(holders[s.Step], n)
			}
		}
	}
	for step, list := range holders {
		if 2*len(list) >= len(names) && (donors == nil || step > best) {
			best, donors = step, list
		}
	}
	return best, slices.Clone(donors)
}
