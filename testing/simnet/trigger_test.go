package simnet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/simnet"
)

// train runs steps with one sum each at all ranks, and returns the number of completed steps by
// rank.
func (b *bench) train(ts []transport.Transport, steps int64) []int64 {
	b.t.Helper()
	made := make([]int64, len(ts))
	var all sync.WaitGroup
	for rank, e := range ts {
		c, err := collective.New(e, rank, len(ts), collective.Options{})
		if err != nil {
			b.t.Fatal(err)
		}
		all.Go(func() {
			for step := int64(1); step <= steps; step++ {
				b.Begin(b.view.Members[rank].ID, rank, step)
				v := []int64{int64(rank)}
				if collective.AllReduce(b.t.Context(), c, v, v, collective.Sum[int64]) != nil {
					break
				}
				if n := int64(len(ts)); v[0] != n*(n-1)/2 {
					b.t.Errorf("sum %d", v[0])
				}
				made[rank] = step
			}
			if err := c.Close(); err != nil {
				b.t.Error(err)
			}
		})
	}
	all.Wait()
	return made
}

// The member dies as it begins the step, so no rank completes the step.
func TestKillAtStep(t *testing.T) {
	for rank := range 3 {
		for step := int64(1); step <= 3; step++ {
			inBubble(t, 3, simnet.Config{}, func(t *testing.T, b *bench) {
				b.KillAt(rank, step)
				b.KillAt(rank, 100) // has no effect, because the job ends earlier
				if made := b.train(b.connect(), 10); slices.Max(made) != step-1 || slices.Min(made) != step-1 {
					t.Errorf("rank %d killed at step %d: made %v steps", rank, step, made)
				}
			})
		}
	}
}

// A member can be killed at each message of a run. After the kill all calls end.
func TestKillWhen(t *testing.T) {
	var total map[elastic.ID]int
	inBubble(t, 3, simnet.Config{}, func(t *testing.T, b *bench) {
		if made := b.train(b.connect(), 5); slices.Min(made) != 5 {
			t.Errorf("without faults: %v", made)
		}
		total = make(map[elastic.ID]int)
		for _, m := range b.view.Members {
			total[m.ID] = b.Sent(m.ID, simnet.Data)
		}
		if b.Sent("nobody", simnet.Data) != 0 {
			t.Error("nobody has sent")
		}
	})
	for id, count := range total {
		for k := 1; k <= count; k++ {
			inBubble(t, 3, simnet.Config{}, func(t *testing.T, b *bench) {
				kills := 0
				b.KillWhen(func(m simnet.Message) bool {
					if m.From != id || m.Plane != simnet.Data || m.Number != k {
						return false
					}
					if m.Epoch != 1 || m.To == "" || m.Envelope.Call.Kind != transport.KindAllReduce || m.Bytes == 0 {
						t.Errorf("message %+v", m)
					}
					kills++
					return true
				})
				made := b.train(b.connect(), 5)
				if kills != 1 || made[int(id[0]-'a')] == 5 || slices.Max(made)-slices.Min(made) > 1 {
					t.Errorf("%s killed %d times, at message %d of %d: made %v steps", id, kills, k, count, made)
				}
			})
		}
	}
	if total["a"] < 5 {
		t.Errorf("%v messages in all", total)
	}
}

// The hook gets control messages and requests with their contents, and may kill other members.
func TestKillWhenSeesAll(t *testing.T) {
	inBubble(t, 3, simnet.Config{}, func(t *testing.T, b *bench) {
		serve(b.ends[1], state(100))
		var seen []string
		b.KillWhen(func(m simnet.Message) bool {
			seen = append(seen, fmt.Sprintf("%s to %s, %v %d: %d %q", m.From, m.To, m.Plane, m.Number, m.Bytes, m.Payload))
			if m.Plane == simnet.Bulk && m.From == "b" {
				b.Kill("a")
			}
			return m.From == "c"
		})
		b.say(0, 1, "hello")
		if _, err := b.fetch(t.Context(), 0, "b", "why"); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("asked by one that died: %v", err)
		}
		if err := b.ends[2].Network.Send(t.Context(), "b", []byte("x")); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("sent by one that died: %v", err)
		}
		want := []string{`a to b, control 1: 5 "hello"`, `a to b, bulk 1: 3 "why"`, `b to a, bulk 1: 103 ""`, `c to b, control 1: 1 "x"`}
		if !slices.Equal(seen, want) {
			t.Errorf("saw %q", seen)
		}
		b.KillWhen(nil)
		pass(time.Second) // b learns of the death
		if b.ends[1].Network.Send(t.Context(), "a", nil) == nil {
			t.Error("a lives")
		}
	})
}

// record is a sink that counts events.
type record struct{ events int }

func (r *record) Emit(event.Event) { r.events++ }

// Sink derives from the events which rank a member has in its last view, and which steps it has
// reported.
func TestKillAtByEvents(t *testing.T) {
	view := func(epoch uint64, who string, members ...string) event.Event {
		return event.Event{Peer: who, Epoch: epoch, Body: event.View{Members: members}}
	}
	step := func(who string, n int64) event.Event { return event.Event{Peer: who, Step: n, Body: event.Step{}} }
	tests := map[string]struct {
		rank   int
		step   int64
		events []event.Event
		dead   elastic.ID
	}{
		"first step":   {1, 1, []event.Event{view(1, "a", "a", "b"), view(1, "b", "a", "b")}, "b"},
		"not yet":      {1, 5, []event.Event{view(1, "b", "a", "b"), step("b", 1), step("b", 2)}, ""},
		"fifth step":   {1, 5, []event.Event{view(1, "b", "a", "b"), step("b", 1), step("b", 2), step("b", 3)}, "b"},
		"another rank": {1, 5, []event.Event{view(1, "a", "a", "b"), step("a", 3)}, ""},
		"new rank":     {0, 5, []event.Event{view(1, "b", "a", "b"), view(2, "b", "b"), step("b", 3)}, "b"},
		"no view":      {0, 5, []event.Event{step("b", 3)}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, simnet.Config{}, func(t *testing.T, b *bench) {
				b.KillAt(test.rank, test.step)
				inner := &record{}
				sink := b.Sink(inner)
				for _, e := range test.events {
					sink.Emit(e)
				}
				if inner.events != len(test.events) {
					t.Errorf("%d of %d events passed on", inner.events, len(test.events))
				}
				for i, e := range b.ends {
					err := e.Network.Send(t.Context(), elastic.ID(rune('a'+1-i)), nil)
					if dead := errors.Is(err, transport.ErrClosed); dead != (e.Self.ID == test.dead) {
						t.Errorf("%s: %v", e.Self.ID, err)
					}
				}
			})
		})
	}
}

// The program calls Begin, and a member dies at that step. The calls of the other members return
// the loss, and they could continue without it.
func ExampleNetwork_KillAt() {
	// In a test this would be in synctest.Test, so that time is virtual.
	n := simnet.New(simnet.Config{Seed: 1})
	defer n.Close()
	n.KillAt(1, 3)
	v := elastic.View{Epoch: 1, Members: []elastic.Member{{ID: "x"}, {ID: "y"}}}
	member := func(rank int) (steps int64, err error) {
		ctx := context.Background()
		t, err := n.Endpoint(v.Members[rank]).Network.Connect(ctx, v, rank)
		if err != nil {
			return 0, err
		}
		c, err := collective.New(t, rank, 2, collective.Options{})
		if err != nil {
			return 0, err
		}
		defer c.Close()
		for step := int64(1); step <= 10; step++ {
			n.Begin(v.Members[rank].ID, rank, step)
			if err := collective.Barrier(ctx, c); err != nil {
				return step - 1, err
			}
		}
		return 10, nil
	}
	other := begin(func() error {
		_, err := member(1)
		return err
	})
	steps, err := member(0)
	var lost *transport.PeerError
	fmt.Println(steps, "steps, then the loss of a rank:", errors.As(err, &lost), lost.Rank)
	fmt.Println("rank 1 ended by itself:", errors.Is(<-other, transport.ErrClosed))
	// Output:
	// 2 steps, then the loss of a rank: true 1
	// rank 1 ended by itself: true
}
