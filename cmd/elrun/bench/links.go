package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/elrun/elrun/collective"
)

const (
	linkLeast  = 256 << 10              // bytes of the first transfer over a link
	linkMost   = 64 << 20               // bytes of the longest
	linkTime   = 200 * time.Millisecond // that a transfer takes at least, if it is not the longest
	linkRounds = 3                      // transfers of the last length, of which the fastest counts
)

// Links measures the link from each rank to the next, by data that is checked, one link after
// the other. It returns the speed of each at all ranks, in 1e9 bytes/s; none for a single rank.
func Links(ctx context.Context, c *collective.Comm) ([]float64, error) {
	n := c.Size()
	if n == 1 {
		return nil, nil
	}
	speeds := make([]float64, n)
	l := linkTest{comm: c, values: newValues[int32]("sum", n), data: make([]int32, linkMost/4)}
	for from := range n {
		var err error
		switch to := (from + 1) % n; c.Rank() {
		case from:
			err = l.send(ctx, to)
		case to:
			speeds[from], err = l.receive(ctx, from)
		}
		if err == nil {
			err = collective.Barrier(ctx, c)
		}
		if err != nil {
			return nil, fmt.Errorf("bench: link from rank %d to the next: %w", from, err)
		}
	}
	if err := collective.AllReduce(ctx, c, speeds, speeds, collective.Max[float64]); err != nil {
		return nil, fmt.Errorf("bench: exchange the speeds of links: %w", err)
	}
	return speeds, nil
}

// linkTest is one rank's part in the measurement of links. The receiver asks for each transfer,
// and so knows when it begins.
type linkTest struct {
	comm   *collective.Comm
	values values[int32]
	data   []int32
}

// send sends what the next rank asks for, until it asks for nothing.
func (l *linkTest) send(ctx context.Context, to int) error {
	l.values.fill(l.data, l.values.start(l.comm.Rank(), 0, 0))
	asked := make([]int64, 1)
	for {
		if err := collective.Recv(ctx, l.comm, to, 0, asked); err != nil || asked[0] == 0 {
			return err
		}
		if asked[0] < 0 || asked[0] > int64(len(l.data)) {
			return fmt.Errorf("it asks for %d elements", asked[0])
		}
		if err := collective.Send(ctx, l.comm, to, 0, l.data[:asked[0]]); err != nil {
			return err
		}
	}
}

// receive asks for longer and longer transfers, until one takes long enough to tell the speed
// of the link, and returns the best of those of the last length, in 1e9 bytes/s.
func (l *linkTest) receive(ctx context.Context, from int) (best float64, err error) {
	for length, rounds := linkLeast/4, 0; rounds < linkRounds; {
		got := l.data[:length]
		l.values.spoil(got)
		begin := time.Now()
		if err := collective.Send(ctx, l.comm, from, 0, []int64{int64(length)}); err != nil {
			return 0, err
		}
		if err := collective.Recv(ctx, l.comm, from, 0, got); err != nil {
			return 0, err
		}
		took := time.Since(begin)
		if wrong := l.values.check(got, span{end: length, from: from}, 0); wrong > 0 {
			return 0, fmt.Errorf("%d of %d elements arrived changed: look for bad memory or a bad network card", wrong, length)
		}
		if took < linkTime && length < linkMost/4 {
			length *= 2
			continue
		}
		rounds++
		best = max(best, float64(4*length)/max(took.Seconds(), 1e-9)/1e9)
	}
	return best, collective.Send(ctx, l.comm, from, 0, []int64{0})
}
