package simnet_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/simnet"
)

// drawFault draws one action on a network of three members.
func drawFault(rt *rapid.T) func(n *simnet.Network) {
	member := rapid.SampledFrom([]elastic.ID{"a", "b", "c"})
	x, y := rapid.SampledFrom([]elastic.ID{simnet.Any, "a", "b", "c"}).Draw(rt, "from"), member.Draw(rt, "to")
	planes := rapid.SampledFrom([][]simnet.Plane{nil, {simnet.Data}, {simnet.Control}}).Draw(rt, "planes")
	link := simnet.Link{
		Delay:     time.Duration(rapid.IntRange(0, 100).Draw(rt, "delay")) * time.Millisecond,
		Lag:       time.Duration(rapid.IntRange(0, 100).Draw(rt, "lag")) * time.Millisecond,
		Bandwidth: rapid.SampledFrom([]int{0, 10_000, 1_000_000}).Draw(rt, "bandwidth"),
	}
	return rapid.SampledFrom([]func(n *simnet.Network){
		func(n *simnet.Network) { n.Cut(x, y, planes...) },
		func(n *simnet.Network) { n.Mend(x, y, planes...) },
		func(n *simnet.Network) { n.Stop(y) },
		func(n *simnet.Network) { n.Continue(y) },
		func(n *simnet.Network) { n.Partition([]elastic.ID{y}) },
		func(n *simnet.Network) { n.Heal() },
		func(n *simnet.Network) { n.SetLink(x, y, link, planes...) },
	}).Draw(rt, "fault")
}

// When all faults have ended, every stream has delivered all messages, once and in order.
func TestStreamsSurvive(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		var faults []func(n *simnet.Network)
		var pauses []time.Duration
		for range rapid.IntRange(0, 15).Draw(rt, "faults") {
			faults = append(faults, drawFault(rt))
			pauses = append(pauses, time.Duration(rapid.IntRange(0, 300).Draw(rt, "pause"))*time.Millisecond)
		}
		var errs []error
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, 3, simnet.Config{Seed: seed, Window: 20_000, Backoff: time.Second})
			ts := b.connect()
			var done []<-chan error
			for from, e := range ts {
				for to := range ts {
					if from != to {
						done = append(done, begin(func() error { return b.sendMany(e, from, to) }),
							begin(func() error { return recvMany(t, e, to) }))
					}
				}
				done = append(done, begin(func() error { return b.hearMany(from, len(ts)-1) }))
			}
			for i, f := range faults {
				f(b.Network)
				pass(pauses[i])
			}
			b.Heal()
			for _, m := range b.view.Members {
				b.Continue(m.ID)
			}
			for _, d := range done {
				errs = append(errs, <-d)
			}
			closeAll(t, ts)
		})
		for _, err := range errs {
			if err != nil {
				rt.Error(err)
			}
		}
	})
}

// many is the number of messages from each member to each other member on each plane.
const many = 30

// payload returns message i: its number, and zero bytes that fill windows.
func payload(i int) []byte {
	return binary.LittleEndian.AppendUint32(make([]byte, 0, 4+i*97%3000), uint32(i))[:4+i*97%3000]
}

// sendMany sends messages on both planes, alternately.
func (b *bench) sendMany(e transport.Transport, from, to int) error {
	ctx := b.t.Context()
	for i := range many {
		if err := e.Send(ctx, to, env(uint32(i/3)), payload(i)); err != nil {
			return fmt.Errorf("send %d to %d: %w", from, to, err)
		}
		if err := b.ends[from].Network.Send(ctx, b.ends[to].Self.ID, payload(i)); err != nil {
			return err
		}
		pass(20 * time.Millisecond)
	}
	return nil
}

// recvMany receives the messages on the data plane and checks them.
func recvMany(t *testing.T, e transport.Transport, from int) error {
	for i := range many {
		buf := make([]byte, len(payload(i)))
		if err := e.Recv(t.Context(), from, env(uint32(i/3)), buf); err != nil {
			return fmt.Errorf("receive from %d: %w", from, err)
		}
		if string(buf) != string(payload(i)) {
			return fmt.Errorf("message %d from %d differs from the sent one", i, from)
		}
	}
	return nil
}

// hearMany receives the control messages of the other members and checks them.
func (b *bench) hearMany(at, others int) error {
	next := make(map[elastic.ID]int)
	for heard := 0; heard < others*many; {
		switch e := <-b.ends[at].Network.Events(); {
		case e.Kind == elastic.PeerMessage && string(e.Data) == string(payload(next[e.Peer])):
			next[e.Peer]++
			heard++
		case e.Kind != elastic.PeerUp:
			return fmt.Errorf("at %d, after %v: %s", at, next, text(e))
		}
	}
	return nil
}
