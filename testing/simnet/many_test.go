package simnet_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/simnet"
)

// crowd is a group whose members add up a value every 10 ms, with counts of the messages.
type crowd struct {
	net      *simnet.Network
	letters  atomic.Int64 // messages on Control
	messages atomic.Int64 // messages on Data
	summed   chan int     // gets the size of the session when a member has finished its first sum in it
}

// A large group forms with its data plane. It continues when a member dies, and when another member
// joins. scripts/scale makes docs/scale.md from the log of this test. The memory for the streams
// between members limits the flag -many.
func TestManyMembers(t *testing.T) {
	n := flag.Lookup("many").Value.(flag.Getter).Get().(int)
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{net: simnet.New(simnet.Config{Link: simnet.Link{Delay: 100 * time.Microsecond}}), summed: make(chan int, 4*n)}
		var first []elastic.Member
		for i := range n {
			first = append(first, elastic.Member{ID: elastic.ID(fmt.Sprintf("m%04d", i)), Index: i, Host: fmt.Sprint("host", i/8)})
		}
		c.net.KillWhen(c.count)
		before := memory()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i, m := range first {
			all.Go(func() {
				if err := c.train(ctx, m, elastic.Config{Peers: first}); err != nil && i != n/2 && ctx.Err() == nil {
					t.Errorf("%s: %v", m.ID, err)
				}
			})
		}
		c.phase(t, "form", n, n, n)
		t.Logf("full phase=memory members=%d member_bytes=%d", n, (memory()-before)/int64(n))
		c.net.Kill(first[n/2].ID)
		c.phase(t, "kill", n, n-1, n-1)
		late := elastic.Member{ID: "late", Host: "host0"}
		all.Go(func() {
			contacts := func() []elastic.Member { return first[:4] }
			if err := c.train(ctx, late, elastic.Config{Contacts: contacts}); err != nil && ctx.Err() == nil {
				t.Errorf("newcomer: %v", err)
			}
		})
		c.phase(t, "join", n, n, n)
		cancel()
		all.Wait()
		if err := c.net.Close(); err != nil {
			t.Error(err)
		}
	})
}

// phase waits until the given number of members have finished a sum in a session of a size. It logs
// the virtual time and the numbers of messages.
func (c *crowd) phase(t *testing.T, name string, n, members, size int) {
	begun, letters, messages := time.Now(), c.letters.Load(), c.messages.Load()
	for left := members; left > 0; {
		select {
		case got := <-c.summed:
			if got == size {
				left--
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: %d of %d members are not in the session", name, left, members)
		}
	}
	t.Logf("full phase=%s members=%d ms=%d letters=%d messages=%d", name, n, time.Since(begun).Milliseconds(),
		c.letters.Load()-letters, c.messages.Load()-messages)
}

// count counts a message. As a hook it kills nobody.
func (c *crowd) count(m simnet.Message) bool {
	switch m.Plane {
	case simnet.Control:
		c.letters.Add(1)
	case simnet.Data:
		c.messages.Add(1)
	}
	return false
}

// train joins the group and adds up a value every 10 ms, until ctx ends.
func (c *crowd) train(ctx context.Context, self elastic.Member, cfg elastic.Config) error {
	cfg.Endpoint = c.net.Endpoint(self)
	g, err := elastic.Join(ctx, cfg)
	if err != nil {
		return err
	}
	s, err := g.Sessions().Next(ctx, 0)
	for told := uint64(0); err == nil; {
		sum := []int64{1}
		if collective.AllReduce(ctx, s.Comm, sum, sum, collective.Sum[int64]) != nil {
			s, err = g.Sessions().Next(ctx, s.View.Epoch)
			continue
		}
		if sum[0] != int64(len(s.View.Members)) {
			return fmt.Errorf("a sum of %d members is %d", len(s.View.Members), sum[0])
		}
		if told != s.View.Epoch {
			told = s.View.Epoch
			c.summed <- len(s.View.Members)
		}
		<-time.After(10 * time.Millisecond)
		var leave bool
		if leave, err = s.Boundary(ctx); err == nil && leave {
			s, err = g.Sessions().Next(ctx, s.View.Epoch)
		} else if err != nil && ctx.Err() == nil {
			s, err = g.Sessions().Next(ctx, s.View.Epoch)
		}
	}
	return errors.Join(err, g.Close())
}
