package transfer

import (
	"context"
	"slices"
	"time"

	"github.com/elrun/elrun/internal/pause"
)

const (
	firstPause = 50 * time.Millisecond // pause before a failed request is repeated; doubles up to longPause
	longPause  = 2 * time.Second
)

// promise is a snapshot that donors hold or will make.
type promise struct {
	step int64
	// donors are the donors that have promised the snapshot.
	donors  []string
	replays bool // the donors keep the updates after step
}

// chooser chooses a snapshot that as many donors as possible can provide.
type chooser struct {
	client
	odd      map[string]bool // donors that are not used
	forged   map[string]bool // donors that sent a chunk whose hash is not in the majority's manifest
	distance int64           // steps from the most advanced donor's step to the snapshot; doubles after a miss
	missed   bool            // at the last choice a donor had already passed the chosen step
	full     bool            // at the last choice a donor had no memory for another snapshot
}

// choose repeats rounds until donors have promised a snapshot, or ctx ends. Each round costs two
// round trips. A newcomer has one lease per donor, so a request for another step withdraws the
// earlier one.
func (c *chooser) choose(ctx context.Context) (promise, error) {
	for wait := firstPause; ; wait = min(2*wait, longPause) {
		p, again := c.round(ctx)
		for again && ctx.Err() == nil { // a donor had passed the step: try a later step at once
			p, again = c.round(ctx)
		}
		if len(p.donors) > 0 {
			return p, nil
		}
		if err := pause.For(ctx, wait); err != nil {
			return promise{}, err
		}
	}
}

// round makes one attempt. again reports that a donor had already passed the chosen step.
func (c *chooser) round(ctx context.Context) (p promise, again bool) {
	names := slices.DeleteFunc(slices.Clone(c.o.Donors()), func(n string) bool { return c.odd[n] })
	names = names[:min(len(names), c.o.MaxDonors)]
	// First round trip: ask the donors for their steps, and for the snapshots that they hold.
	where := c.gather(ctx, names, request{Do: opWhere})
	names = slices.DeleteFunc(names, func(n string) bool { _, ok := where[n]; return !ok })
	if len(names) == 0 {
		return promise{}, false
	}
	ahead := false
	p.step, p.donors, ahead = c.target(names, where)
	// Second round trip: order the snapshot at the chosen donors. The donors continue to train
	// between the round trips, so some may have passed the step.
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
		// The distance matters only for the choice of a future step.
		if ahead {
			c.distance *= 2
		}
		return promise{}, true
	}
	return p, false
}

// target chooses the step of the snapshot, and the donors to ask for it. It chooses the present
// step of a donor that makes no steps for now. Otherwise it chooses a step whose snapshot at least
// half of the donors hold, or else a step a little ahead of all donors. A donor can save only the
// state of its present step, so all donors can save the same step only if none of them has passed
// it. The result ahead reports that the step is ahead of all donors.
func (c *chooser) target(names []string, where map[string]header) (step int64, donors []string, ahead bool) {
	highest := int64(0)
	var resting []string
	for _, n := range names {
		highest = max(highest, where[n].At)
		if where[n].Resting {
			resting = append(resting, n)
		}
	}
	if len(resting) == len(names) { // no donor will reach a later step
		return highest, names, false
	}
	resting = slices.DeleteFunc(resting, func(n string) bool { return where[n].At < highest })
	if len(resting) > 0 { // the other donors wait for the resting ones, so no donor reaches a later step soon
		return highest, resting, false
	}
	if step, donors := c.shared(names, where); len(donors) > 0 {
		return step, donors, false
	}
	return highest + c.distance, names, true
}

// shared returns the newest snapshot that at least half of the donors hold and that is recent
// enough: replaying the updates after it must cost much less than copying. If donors have no memory
// for another snapshot its age does not matter. After a miss shared returns none.
func (c *chooser) shared(names []string, where map[string]header) (best int64, donors []string) {
	if c.missed {
		return 0, nil
	}
	holders := map[int64][]string{}
	for _, n := range names {
		for _, s := range where[n].Held {
			// Behind and Bytes are in bytes: the updates to replay, and the state to copy.
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
	// The result is a copy, because the caller deletes elements from it.
	return best, slices.Clone(donors)
}
