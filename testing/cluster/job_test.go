package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
)

// meet enters one session after another until a session has the given number of members.
func meet(ctx context.Context, g *elastic.Group, members int) error {
	for epoch := uint64(0); ; {
		s, err := g.Sessions().Next(ctx, epoch)
		if err != nil {
			return err
		}
		epoch = s.View.Epoch
		for err == nil && s.Comm.Size() != members {
			var left bool
			if left, err = s.Boundary(ctx); left {
				break
			}
			<-time.After(time.Millisecond)
		}
		if err == nil && s.Comm.Size() == members {
			return collective.Barrier(ctx, s.Comm)
		}
		if err != nil && !errors.Is(err, collective.ErrRevoked) {
			return err
		}
	}
}

func TestJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		met := make(map[int]bool)
		job := cluster.Start(t, 3, simnet.New(simnet.Config{}), func(ctx context.Context, g *elastic.Group) error {
			err := meet(ctx, g, 2) // the sessions have 3, 4, 3 and 2 members
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				met[g.Self().Index] = true
			}
			return err
		})
		<-time.After(time.Second)
		late := job.Join()
		<-time.After(time.Second)
		job.Kill(0)
		<-time.After(time.Second)
		job.Kill(1)
		job.Wait()
		if late != 3 || fmt.Sprint(met) != "map[2:true 3:true]" {
			t.Errorf("member %d was late, %v met", late, met)
		}
	})
}

// An error at a member that was not killed fails the test. The message names the member.
func TestJobFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		var all sync.WaitGroup
		all.Go(func() {
			job := cluster.Start(r, 2, simnet.New(simnet.Config{}), func(ctx context.Context, g *elastic.Group) error {
				if g.Self().Index == 1 {
					return errors.New("has had enough")
				}
				return nil
			})
			job.Wait()
		})
		all.Wait()
		if r.message != "member 1: has had enough" {
			t.Errorf("the failure says %q", r.message)
		}
	})
}

// kinds is a sink that records which kinds of events each member emits.
type kinds struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (k *kinds) Emit(e event.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen[fmt.Sprintf("%d %T", e.Index, e.Body)] = true
}

// Members add up a value in the first session of a group. Every sink gets the events of all members.
func TestStart(t *testing.T) {
	for n := 1; n <= 3; n++ {
		sinks := [2]*kinds{{seen: map[string]bool{}}, {seen: map[string]bool{}}}
		cluster.Start(t, n, simnet.New(simnet.Config{}), func(ctx context.Context, g *elastic.Group) error {
			s, err := g.Sessions().Next(ctx, 0)
			if err != nil {
				return err
			}
			return sum(ctx, s.Comm)
		}, sinks[0], sinks[1]).Wait()
		for i := range n {
			if want := fmt.Sprintf("%d event.View", i); !sinks[0].seen[want] || !sinks[1].seen[want] {
				t.Errorf("n=%d: no %s among %v and %v", n, want, sinks[0].seen, sinks[1].seen)
			}
		}
	}
}
