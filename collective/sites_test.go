package collective_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/testing/cluster"
)

// at returns options for ranks at the given sites.
func at(o collective.Options, sites ...int) collective.Options {
	o.Sites = sites
	return o
}

// layouts are groups by host and by site from which AllReduce makes levels: sites alone,
// sites and hosts, sites and hosts of one rank each, and a host with ranks of two sites.
func layouts() map[string]layout {
	return map[string]layout{
		"two sites":          {[]int{1, 1, 1, 1}, []int{0, 0, 1, 1}},
		"mixed ranks":        {[]int{1, 1, 1, 1, 1}, []int{0, 1, 0, 1, 0}},
		"memory":             {[]int{2, 1, 2}, []int{7, 7, 7, 3, 3}},
		"one rank at a site": {[]int{1, 2, 1}, []int{2, 1, 1, 1}},
		"five at a site":     {[]int{1, 1, 1, 1, 1, 1}, []int{0, 0, 0, 0, 0, 1}},
		"a host of both":     {[]int{1, 2, 1}, []int{0, 0, 1, 1}},
	}
}

// layout is the number of ranks of each host, and the site of each rank.
type layout struct{ hosts, sites []int }

// sitesOf is the reference for the division by site: it returns, for each rank, the site of the
// first rank of its host.
func sitesOf(hosts, sites []int) []int {
	var out []int
	for _, n := range hosts {
		first := len(out)
		for range n {
			out = append(out, sites[first])
		}
	}
	return out
}

// ownSites counts sites, and the sites with several hosts.
func ownSites(hosts, sites []int) (all, several int) {
	count, rank := make(map[int]int), 0
	for _, n := range hosts {
		count[sites[rank]]++
		rank += n
	}
	for _, n := range count {
		if n > 1 {
			several++
		}
	}
	return len(count), several
}

// For any hosts and sites a sum is right. Between k sites it sends as many bytes as a ring
// with one rank per site: 2(k-1) times the vector in total.
func TestSitesTwin(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		most := rapid.IntRange(1, 3).Draw(r, "most") // ranks of one host; 1 tests hosts of one rank each
		hosts := rapid.SliceOfN(rapid.IntRange(1, most), 1, 5).Draw(r, "hosts")
		ranks := 0
		for _, n := range hosts {
			ranks += n
		}
		sites := rapid.SliceOfN(rapid.IntRange(0, 2), ranks, ranks).Draw(r, "sites")
		length := rapid.IntRange(5000, 6000).Draw(r, "length")
		where := sitesOf(hosts, sites)
		var crossed atomic.Int64
		ts := watchBytes(sharing(t, hosts...), func(rank, to int, e transport.Envelope, n int) {
			if where[rank] != where[to] && e.Call.Count == uint64(length) {
				crossed.Add(int64(n))
			}
		})
		cluster.Run(t, ranks, func(ctx context.Context, c *collective.Comm) error {
			return errors.Join(c.Calibrate(ctx), combined(ctx, c, length))
		}, cluster.Over(ts), cluster.WithOptions(at(slowLinks(), sites...)))
		all, several := ownSites(hosts, sites)
		if want := int64(16 * (all - 1) * length); several > 0 && crossed.Load() != want {
			r.Errorf("%d hosts %v at sites %v: %d bytes of %d cross, want %d", len(hosts), hosts, sites, crossed.Load(), 8*length, want)
		}
	})
}

// combined sums vectors and checks the result.
func combined(ctx context.Context, c *collective.Comm, length int) error {
	v, n := make([]int64, length), int64(c.Size())
	for i := range v {
		v[i] = int64(i*c.Size() + c.Rank())
	}
	if err := collective.AllReduce(ctx, c, v, v, collective.Sum[int64]); err != nil {
		return err
	}
	for i, got := range v {
		if want := int64(i)*n*n + n*(n-1)/2; got != want {
			return fmt.Errorf("element %d: %d, want %d", i, got, want)
		}
	}
	return nil
}

// byteCounter is a transport with a hook that gets the number of bytes of each message.
type byteCounter struct {
	sharingTransport
	sent func(to int, e transport.Envelope, bytes int)
}

func (b byteCounter) Send(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
	b.sent(to, e, len(buf))
	return b.Transport.Send(ctx, to, e, buf)
}

// watchBytes returns the transports with a hook that gets the bytes that each rank sends.
func watchBytes(ts []transport.Transport, sent func(rank, to int, e transport.Envelope, bytes int)) []transport.Transport {
	all := slices.Clone(ts)
	for rank, e := range all {
		all[rank] = byteCounter{sharingTransport{Transport: e}, func(to int, e transport.Envelope, n int) { sent(rank, to, e, n) }}
	}
	return all
}

// Many calls at the same time have the right results: long calls in several pieces, short calls,
// and calls with priorities.
func TestManyOfSites(t *testing.T) {
	t.Parallel()
	const calls = 12
	for name, l := range layouts() {
		t.Run(name, func(t *testing.T) {
			cluster.Run(t, len(l.sites), func(ctx context.Context, c *collective.Comm) error {
				if err := c.Calibrate(ctx); err != nil {
					return err
				}
				var handles []*collective.Handle
				var vectors [][]int64
				for i := range calls {
					v := slices.Repeat([]int64{int64(i + c.Rank())}, 1+(i*i*1977)%12000)
					vectors = append(vectors, v)
					handles = append(handles, collective.IAllReduce(ctx, withPriority(c, i), v, v, collective.Sum[int64]))
				}
				n := c.Size()
				for i, h := range handles {
					if err := h.Wait(ctx); err != nil {
						return err
					}
					want := int64(n*i + n*(n-1)/2)
					if at := slices.IndexFunc(vectors[i], func(x int64) bool { return x != want }); at >= 0 {
						return fmt.Errorf("call %d, element %d: %d, want %d", i, at, vectors[i][at], want)
					}
				}
				return nil
			}, cluster.Over(sharing(t, l.hosts...)), cluster.WithOptions(at(levelPieces(), l.sites...)))
		})
	}
}

// A sum of floating-point numbers has the same bits at all ranks, for any order of the
// ring.
func TestBitsOfSites(t *testing.T) {
	t.Parallel()
	for name, l := range layouts() {
		t.Run(name, func(t *testing.T) {
			all := make([][]float32, len(l.sites))
			order := slices.Clone(alone(len(l.sites)))
			slices.Reverse(order[1:])
			cluster.Run(t, len(l.sites), func(ctx context.Context, c *collective.Comm) error {
				if err := c.Calibrate(ctx); err != nil {
					return err
				}
				v := make([]float32, 4099)
				for i := range v {
					v[i] = 1 / float32(1+i*7+c.Rank()*13)
				}
				all[c.Rank()] = v
				return collective.AllReduce(ctx, c.With(collective.CallOptions{Order: order}), v, v, collective.Sum[float32])
			}, cluster.Over(sharing(t, l.hosts...)), cluster.WithOptions(at(slowLinks(), l.sites...)))
			for rank, v := range all {
				if !slices.Equal(v, all[0]) {
					t.Errorf("rank %d has other bits than rank 0", rank)
				}
			}
		})
	}
}

// alone returns the ranks from 0 to n-1, as sites of their own.
func alone(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// Whichever message cannot be sent, all ranks return an error or the right result.
func TestFaultsOfSites(t *testing.T) {
	t.Parallel()
	l, step := layouts()["memory"], 5
	if racing {
		step = 31
	}
	for deviant := range len(l.sites) {
		for k, failed := 0, true; failed; k += step {
			var sent atomic.Int32
			ts := watch(sharing(t, l.hosts...), func(rank, _ int, _ transport.Envelope) error {
				if rank == deviant && int(sent.Add(1)) == k+1 {
					return errInjected
				}
				return nil
			}, ignore)
			errs := cluster.Run(t, len(ts), func(ctx context.Context, c *collective.Comm) error {
				return errors.Join(c.Calibrate(ctx), summed(ctx, c, 40_000))
			}, cluster.Over(ts), cluster.WithOptions(at(levelPieces(), l.sites...)), cluster.MayFail())
			for rank, err := range errs {
				if err != nil && !errors.Is(err, collective.ErrRevoked) {
					t.Errorf("message %d of rank %d fails: rank %d: %v", k, deviant, rank, err)
				}
			}
			failed = int(sent.Load()) > k
			if failed && errs[deviant] == nil {
				t.Errorf("message %d of rank %d fails, and it does not tell", k, deviant)
			}
		}
	}
}

// Whichever rank is not in a call, the other ranks report it.
func TestStallOfSites(t *testing.T) {
	t.Parallel()
	for name, l := range layouts() {
		for deviant := range len(l.sites) {
			t.Run(fmt.Sprintf("%s, rank %d", name, deviant), func(t *testing.T) {
				t.Parallel()
				stalled := make(chan collective.Stall, 100)
				o := at(slowLinks(), l.sites...)
				o.OnStall = func(s collective.Stall) { stalled <- s }
				cluster.Run(t, len(l.sites), func(ctx context.Context, c *collective.Comm) error {
					if err := c.Calibrate(ctx); err != nil {
						return err
					}
					v := make([]int64, 3000)
					for c.Rank() == deviant {
						s := <-stalled
						if !slices.Equal(s.Culprits, []int{deviant}) {
							t.Errorf("rank %d is not in a call: %v", deviant, s)
						}
						if s.Call.Algorithm == collective.TwoLevel {
							break
						}
					}
					return collective.AllReduce(ctx, c, v, v, collective.Min[int64])
				}, cluster.Over(sharing(t, l.hosts...)), cluster.WithOptions(o))
			})
		}
	}
}

// New refuses a list of sites of the wrong length.
func TestSitesArgument(t *testing.T) {
	ts := sharing(t, 1, 1)
	if _, err := collective.New(ts[0], 0, 2, at(slowLinks(), 1)); !errors.Is(err, collective.ErrArgument) {
		t.Errorf("one site for two ranks: %v", err)
	}
	for _, e := range ts {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
