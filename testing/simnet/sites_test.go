package simnet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/simnet"
)

// siteElements is the number of int64 in a vector to add up: 1.28 MB.
const siteElements = 160_000

// siteMembers returns three members at each of two sites, alternately. Their IDs begin with the name of the site.
func siteMembers(named bool) []elastic.Member {
	var all []elastic.Member
	for i := range 6 {
		m := elastic.Member{ID: elastic.ID(fmt.Sprintf("%c%d", "ew"[i%2], i)), Index: i, Host: fmt.Sprint("host", i)}
		if named {
			m.Site = string(m.ID[:1])
		}
		all = append(all, m)
	}
	return all
}

// runSites runs sums at all members. It returns the virtual time of a sum, and the bytes that were sent between the sites. kill
// decides whether the sender of the n-th message between the sites dies, counted from 0.
func runSites(t *testing.T, named bool, kill func(n int64) bool) (took time.Duration, crossed int64) {
	members := siteMembers(named)
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{Link: simnet.Link{Delay: 100 * time.Microsecond, Bandwidth: 125e6}})
		for _, from := range members {
			for _, to := range members {
				if from.ID[0] != to.ID[0] {
					n.SetLink(from.ID, to.ID, simnet.Link{Delay: 5 * time.Millisecond, Bandwidth: 50e6 / 8})
				}
			}
		}
		var bytes, messages atomic.Int64
		var killed sync.Map // IDs of killed members
		n.KillWhen(func(m simnet.Message) bool {
			call := m.Envelope.Call
			if m.Plane != simnet.Data || m.From[0] == m.To[0] || call.Kind != transport.KindAllReduce || call.Type != dtype.Int64 {
				return false
			}
			bytes.Add(int64(m.Bytes))
			dies := kill(messages.Add(1) - 1)
			if dies {
				killed.Store(m.From, true)
			}
			return dies
		})
		var all sync.WaitGroup
		var mu sync.Mutex
		for _, m := range members {
			all.Go(func() {
				d, err := sumSteps(t.Context(), n, m, members)
				mu.Lock()
				defer mu.Unlock()
				took = max(took, d)
				if _, dead := killed.Load(m.ID); err != nil && !dead {
					t.Errorf("%s: %v", m.ID, err)
				}
			})
		}
		all.Wait()
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		crossed = bytes.Load()
	})
	return took, crossed
}

// siteSteps is the number of sums.
const siteSteps = 3

// sumSteps adds up a vector siteSteps times with the members that are left. It returns the duration
// of the last sum.
func sumSteps(ctx context.Context, n *simnet.Network, self elastic.Member, members []elastic.Member) (took time.Duration, err error) {
	g, err := elastic.Join(ctx, elastic.Config{Endpoint: n.Endpoint(self), Peers: members})
	if err != nil {
		return 0, err
	}
	step, constant := int64(0), make([]int64, 1)
	for turn := range g.Steps(ctx, elastic.Vectors(&step, &constant), siteSteps) {
		v := slices.Repeat([]int64{1}, siteElements)
		begun := time.Now()
		if collective.AllReduce(ctx, turn.Comm, v, v, collective.Sum[int64]) != nil {
			continue // tries again in the next session
		}
		took = time.Since(begun)
		if want := int64(turn.Comm.Size()); slices.ContainsFunc(v, func(x int64) bool { return x != want }) {
			turn.Fail(fmt.Errorf("a sum of %d is wrong: %d", want, v[0]))
			continue
		}
		step++
	}
	return took, errors.Join(g.Err(), g.Close())
}

// A sum is sent between two sites once in each direction, and takes about as long as this transfer.
func TestSumOfSites(t *testing.T) {
	nobody := func(int64) bool { return false }
	const once = 8 * siteElements
	took, crossed := runSites(t, true, nobody)
	if crossed != siteSteps*2*once || took > 400*time.Millisecond { // sending the vector takes 205 ms
		t.Errorf("with sites %d bytes cross, want %d, and a sum takes %v", crossed, siteSteps*2*once, took)
	}
	flat, more := runSites(t, false, nobody)
	if more < crossed*3/2 {
		t.Errorf("without sites %d bytes cross, with them %d", more, crossed)
	}
	t.Logf("without sites %.2f times the bytes and %.2f times as long", float64(more)/float64(crossed), float64(flat)/float64(took))
}

// If the member that sums for its site dies, the other members continue.
func TestHeadOfSiteDies(t *testing.T) {
	for _, at := range []int64{0, 1, 3, 6} {
		runSites(t, true, func(n int64) bool { return n == at })
	}
}
