package simnet_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/simnet"
)

// silentHosts is the number of hosts in TestSilentHost, and silentPeers the number of peers on each
// host.
const silentHosts, silentPeers = 8, 4

// lostLog collects the losses that members report which may not be lost themselves.
type lostLog struct {
	mu      sync.Mutex
	victims []string // short IDs of the members that may be lost
	others  []string // short IDs of the other peers that were lost
	epochs  []uint64 // in which members were lost, ascending
}

// Emit records a loss, unless a victim reports it.
func (l *lostLog) Emit(e event.Event) {
	body, ok := e.Body.(event.Lost)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !ok || slices.Contains(l.victims, e.Peer):
	case !slices.Contains(l.victims, body.Who):
		l.others = append(l.others, body.Who)
	case !slices.Contains(l.epochs, e.Epoch):
		l.epochs = append(l.epochs, e.Epoch)
	}
}

// may reports whether a member may be lost.
func (l *lostLog) may(id elastic.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.victims, id.Short())
}

// If a host does not send, or does not receive, the members of the other hosts agree on one view
// without all its members, within two seconds. This also holds for a host between two hosts that
// were put out before, whose members have new watchers.
func TestSilentHost(t *testing.T) {
	for _, name := range []string{"mute", "deaf"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { silence(t, name == "mute") })
		})
	}
}

// silence makes three hosts mute or deaf, one after the other: the two neighbours of a host, and
// then the host itself.
func silence(t *testing.T, mute bool) {
	n := silentHosts * silentPeers
	c := &crowd{net: simnet.New(simnet.Config{Link: simnet.Link{Delay: 100 * time.Microsecond}}), summed: make(chan int, 4*n)}
	first := make([]elastic.Member, n)
	for i := range first {
		host := fmt.Sprint("host", i/silentPeers)
		first[i] = elastic.Member{ID: elastic.ID(fmt.Sprintf("m%04d", i)), Index: i % silentPeers, Host: host, Launcher: host}
	}
	lost := new(lostLog)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, m := range first {
		all.Go(func() {
			if err := c.train(ctx, m, elastic.Config{Peers: first, Sink: lost}); err != nil && ctx.Err() == nil && !lost.may(m.ID) {
				t.Errorf("%s: %v", m.ID, err)
			}
		})
	}
	c.phase(t, "form", n, n, n)
	for _, host := range []int{3, 5, 4} {
		<-time.After(4 * time.Second)
		lost.mu.Lock()
		lost.epochs = nil
		for rank := range first {
			for victim := silentPeers * host; victim < silentPeers*(host+1); victim++ {
				from, to := first[victim], first[rank]
				if !mute {
					from, to = to, from
				}
				if from.Host != to.Host {
					c.net.Cut(from.ID, to.ID)
				}
			}
		}
		for _, m := range first[silentPeers*host : silentPeers*(host+1)] {
			lost.victims = append(lost.victims, m.ID.Short())
		}
		lost.mu.Unlock()
		cut := time.Now()
		n -= silentPeers
		c.phase(t, fmt.Sprint("host", host), len(first), n, n)
		if took := time.Since(cut); len(lost.epochs) != 1 || took > 2*time.Second {
			t.Errorf("host %d goes in the epochs %v, after %v", host, lost.epochs, took)
		}
	}
	if len(lost.others) > 0 {
		t.Errorf("lost, although they were heard: %v", lost.others)
	}
	cancel()
	c.net.Heal()
	all.Wait()
	if err := c.net.Close(); err != nil {
		t.Error(err)
	}
}
