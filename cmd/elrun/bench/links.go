package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/elrun/elrun/collective"
)

const (
	minLinkBytes = 256 << 10              // bytes of the first transfer; later transfers are twice as long as the one before
	maxLinkBytes = 64 << 20               // bytes of the longest transfer
	linkTime     = 200 * time.Millisecond // a shorter transfer does not count, unless it has the maximum length
	linkRounds   = 3                      // transfers of the final length; the fastest counts
)

// Links measures the link from each rank to the next, one after the other, and checks the data.
// It returns the speed of each link, in 1e9 bytes/s, at all ranks; nil for a single rank.
func Links(ctx context.Context, c *collective.Comm) ([]float64, error) {
	n := c.Size()
	if n == 1 {
		return nil, nil
	}
	speeds := make([]float64, n)
	l := linkTest{comm: c, values: newValues[int32]("sum", n), data: make([]int32, maxLinkBytes/4)}
	// The links are measured one after the other, because links that share a network card or a
	// switch would slow each other down. The barrier keeps all ranks idle that are at neither end
	// of the link.
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
	// Only the receiver of a link knows its speed; the entries of all other ranks are 0.
	if err := collective.AllReduce(ctx, c, speeds, speeds, collective.Max[float64]); err != nil {
		return nil, fmt.Errorf("bench: exchange the speeds of links: %w", err)
	}
	return speeds, nil
}

// linkTest is one rank's part of the measurement. The receiver requests each transfer and
// measures from the request to the last byte, so that no clocks of two hosts are compared.
type linkTest struct {
	comm   *collective.Comm
	values values[int32]
	data   []int32 // buffer of the sender or the receiver, maxLinkBytes long
}

// send answers the receiver's requests, each a number of elements, until the request is 0.
func (l *linkTest) send(ctx context.Context, to int) error {
	l.values.fill(l.data, l.values.start(l.comm.Rank(), 0, 0))
	asked := make([]int64, 1)
	for {
		if err := collective.Recv(ctx, l.comm, to, 0, asked); err != nil || asked[0] == 0 {
			return err
		}
		if asked[0] < 0 || asked[0] > int64(len(l.data)) {
			return fmt.Errorf("the receiver asks for %d elements, want 0 to %d", asked[0], len(l.data))
		}
		if err := collective.Send(ctx, l.comm, to, 0, l.data[:asked[0]]); err != nil {
			return err
		}
	}
}

// receive requests transfers of growing length until a transfer takes linkTime. It measures
// linkRounds transfers of that length, and returns the best of their speeds, in 1e9 bytes/s.
func (l *linkTest) receive(ctx context.Context, from int) (best float64, err error) {
	for length, rounds := minLinkBytes/4, 0; rounds < linkRounds; {
		got := l.data[:length]
		// Without poison, elements that do not arrive would have the right values of the transfer
		// before.
		l.values.poison(got)
		begin := time.Now()
		if err := collective.Send(ctx, l.comm, from, 0, []int64{int64(length)}); err != nil {
			return 0, err
		}
		if err := collective.Recv(ctx, l.comm, from, 0, got); err != nil {
			return 0, err
		}
		took := time.Since(begin)
		if wrong := l.values.check(got, span{end: length, from: from}, 0); wrong > 0 {
			return 0, fmt.Errorf("%d of %d elements arrived with other values: look for bad memory or a bad network card", wrong, length)
		}
		// In a short transfer the latency dominates, so the next transfer is longer.
		if took < linkTime && length < maxLinkBytes/4 {
			length *= 2
			continue
		}
		rounds++
		best = max(best, float64(4*length)/max(took.Seconds(), 1e-9)/1e9)
	}
	// A request of 0 elements ends the sender's loop.
	return best, collective.Send(ctx, l.comm, from, 0, []int64{0})
}
