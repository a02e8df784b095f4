package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/elrun/elrun/collective"
)

const (
	minLinkBytes = 256 << 10              // bytes of the first transfers; later ones are four times as long as the ones before
	maxLinkBytes = 64 << 20               // bytes of the longest transfers
	linkTime     = 200 * time.Millisecond // in a shorter transfer latency dominates, so it does not count unless it has the maximum length
	linkRounds   = 2                      // timed transfers of a length; the fastest counts
)

// Links measures the link from each rank to the next, and checks the data. It returns the speed of
// each link, in 1e9 bytes/s, at all ranks; nil for a single rank. The links are measured one after
// the other, because links that share a network card or a switch would slow each other down.
func Links(ctx context.Context, c *collective.Comm) ([]float64, error) {
	if c.Size() == 1 {
		return nil, nil
	}
	speeds := make([]float64, c.Size())
	v := newValues[int32]("sum", c.Size())
	for from := range speeds {
		var err error
		if speeds[from], err = link(ctx, c, v, from); err != nil {
			return nil, fmt.Errorf("bench: link from rank %d to the next: %w", from, err)
		}
	}
	return speeds, nil
}

// link measures the link from a rank to the next one, in 1e9 bytes/s, with growing transfers until
// one takes linkTime. All ranks get the same times, so they stop together.
func link(ctx context.Context, c *collective.Comm, v values[int32], from int) (float64, error) {
	for length := minLinkBytes / 4; ; length *= 4 {
		m := measurement[int32]{call: transfer(c, from, length), values: v, comm: c, iters: linkRounds}
		r, err := m.run(ctx)
		switch {
		case err != nil:
			return 0, err
		case r.Wrong > 0:
			return 0, fmt.Errorf("%d elements arrived with other values: look for bad memory or a bad network card", r.Wrong)
		case r.Min >= float64(linkTime/time.Microsecond) || r.Bytes == maxLinkBytes:
			return float64(r.Bytes) / max(r.Min, 1e-3) / 1000, nil // bytes per microsecond are 1e6 bytes/s
		}
	}
}

// transfer returns the call in which a rank sends a vector to the next one, and the others do
// nothing.
func transfer(c *collective.Comm, from, length int) benchCase[int32] {
	k := benchCase[int32]{whole: length, do: func(context.Context, []int32, []int32) error { return nil }}
	switch to := (from + 1) % c.Size(); c.Rank() {
	case from:
		k.src = make([]int32, length)
		k.do = func(ctx context.Context, _, src []int32) error { return collective.Send(ctx, c, to, 0, src) }
	case to:
		k.dst, k.spans = make([]int32, length), []span{{end: length, from: from}}
		k.do = func(ctx context.Context, dst, _ []int32) error { return collective.Recv(ctx, c, from, 0, dst) }
	}
	return k
}
