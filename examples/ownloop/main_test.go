package main_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/elastic"
	ownloop "github.com/elrun/elrun/examples/ownloop"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer/checkpoint"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Sizes of the jobs in these tests.
const (
	steps = 200
	pace  = 10 * time.Millisecond
)

// network returns a network whose links have a small latency.
func network(seed uint64) *simnet.Network {
	return simnet.New(simnet.Config{Seed: seed, Link: simnet.Link{Delay: time.Millisecond, Lag: time.Millisecond}})
}

// finals has the final models of members.
type finals struct {
	mu     sync.Mutex
	models []ownloop.Model
}

// train is the program of each member.
func (f *finals) train(ctx context.Context, g *elastic.Group) error {
	var m ownloop.Model
	if err := m.Train(ctx, g, checkpoint.Config{}, steps, pace); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.models = append(f.models, m)
	return nil
}

// check requires one model per member. The models must be equal to the bit, and equal to the result
// of alone except for rounding.
func (f *finals) check(t *testing.T, members int) {
	t.Helper()
	if len(f.models) != members {
		t.Fatalf("%d members finished, want %d", len(f.models), members)
	}
	want := alone()
	for _, got := range f.models {
		if got != f.models[0] {
			t.Errorf("one member has %+v, another %+v", got, f.models[0])
		}
		for k, w := range got.Weights {
			if math.Abs(w-want.Weights[k]) > 1e-9 {
				t.Errorf("weights %v, alone %v", got.Weights, want.Weights)
			}
		}
	}
}

// alone is the reference implementation: the loop without peers.
func alone() *ownloop.Model {
	m := new(ownloop.Model)
	for m.Steps < steps {
		m.Commit(m.Gradient(0, ownloop.Batch))
	}
	return m
}

func TestGroups(t *testing.T) {
	for n := 1; n <= 5; n++ {
		synctest.Test(t, func(t *testing.T) {
			var f finals
			cluster.Start(t, n, network(1), f.train).Wait()
			f.check(t, n)
		})
	}
}

// Members die and others join at any time: no sample is lost or counts twice.
func TestChurn(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f finals
				r := rand.New(rand.NewPCG(seed, 0))
				job := cluster.Start(t, 4, network(seed), f.train)
				// Two of the four members die, and also a member that has joined in between. A majority is left each time.
				next := func() { <-time.After(time.Duration(300_000+r.IntN(150_000)) * time.Microsecond) }
				victims := r.Perm(4)
				next()
				job.Kill(victims[0])
				next()
				late := job.Join()
				next()
				job.Kill(late)
				next()
				job.Kill(victims[1])
				job.Wait()
				f.check(t, 2)
			})
		})
	}
}

// A member dies when it sends message number k, counted from the first message of its first step.
// The values of k cover a few steps with all their calls. The other members get the same result as
// without the death.
func TestKillAtMessage(t *testing.T) {
	for k := int64(1); k <= 24; k++ {
		synctest.Test(t, func(t *testing.T) {
			var f finals
			var sent atomic.Int64
			n := network(uint64(k))
			job := cluster.Start(t, 3, n, f.train)
			n.KillWhen(func(m simnet.Message) bool {
				if m.Plane != simnet.Data || m.From != "member-1" || sent.Load() == 0 && m.Envelope.Call.Count != uint64(len(ownloop.Sums{})) {
					return false
				}
				if sent.Add(1) != k {
					return false
				}
				job.Kill(1)
				return true
			})
			job.Wait()
			f.check(t, 2)
		})
	}
}

// A peer with another number of steps is refused.
func TestOtherSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f finals
		refused := false
		job := cluster.Start(t, 2, network(1), func(ctx context.Context, g *elastic.Group) error {
			if g.Self().Index < 2 {
				return f.train(ctx, g)
			}
			err := new(ownloop.Model).Train(ctx, g, checkpoint.Config{}, steps+1, pace)
			if refused = err != nil; !refused {
				return fmt.Errorf("joined with other settings")
			}
			return nil
		})
		job.Join()
		job.Wait()
		f.check(t, 2)
	})
}
