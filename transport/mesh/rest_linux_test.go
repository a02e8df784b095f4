package mesh

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/wire"
	"github.com/elrun/elrun/transport/mailbox"
)

// resting runs f with three meshes in a view in which all pairs have talked. Ranks 0 and 2 have no planned lanes.
func resting(t *testing.T, f func(t *testing.T, ms []*Mesh, ts []*Transport)) {
	tubed(t, "", func(t *testing.T, _ *tubes, ms []*Mesh, v elastic.View) {
		for _, m := range ms {
			m.cfg.Plan = func(_ elastic.View, self int) []bool {
				return [][]bool{{1: true, 2: false}, {true, false, true}, {1: true, 2: false}}[self]
			}
		}
		ts := mustMeet(t, ms, v)
		talk(t, ts)
		f(t, ms, ts)
		talk(t, ts)
		endAll(t, ts)
	})
}

// A pair that was made on demand and is not used gives up its lanes, which are closed. A planned pair keeps them.
func TestPairRests(t *testing.T) {
	resting(t, func(t *testing.T, ms []*Mesh, ts []*Transport) {
		planned := ts[1].pairs[0].Load()
		<-time.After(3*usualIdle + time.Second)
		for i, want := range []int{2, 4, 2} {
			if got := len(ms[i].lanes.all); got != want {
				t.Errorf("member %d has %d lanes, want %d", i, got, want)
			}
		}
		if ts[0].pairs[2].Load() != nil || ts[2].pairs[0].Load() != nil {
			t.Error("the pair does not rest")
		}
		if ts[1].pairs[0].Load() != planned {
			t.Error("a planned pair has rested")
		}
	})
}

// A pair that is used, or in which the higher rank waits for a message, does not rest.
func TestPairInUse(t *testing.T) {
	resting(t, func(t *testing.T, _ []*Mesh, ts []*Transport) {
		pair, e := ts[2].pairs[0].Load(), transport.Envelope{Seq: 9}
		for range 20 {
			if err := ts[2].Send(t.Context(), 0, e, nil); err != nil {
				t.Fatal(err)
			}
			if err := ts[0].Recv(t.Context(), 2, e, nil); err != nil {
				t.Fatal(err)
			}
			<-time.After(usualIdle / 2)
		}
		posted := ts[2].Post(0, e, nil)
		<-time.After(10 * usualIdle)
		if ts[2].pairs[0].Load() != pair {
			t.Error("the pair has rested")
		}
		if err := ts[0].Send(t.Context(), 2, e, nil); err != nil {
			t.Error(err)
		}
		if err := posted.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The limit of buffered messages holds for the pair that is made after a rest.
func TestLimitAfterRest(t *testing.T) {
	resting(t, func(t *testing.T, _ []*Mesh, ts []*Transport) {
		<-time.After(5 * usualIdle)
		const size = 1 << 20
		const count = 2 * mailbox.DefaultLimit / size
		e := transport.Envelope{Seq: 9}
		for to, from := range map[int]int{0: 2, 2: 0} {
			var sent atomic.Int32
			done := make(chan error, 1)
			go func() {
				var err error
				for err == nil && sent.Load() < count {
					err = ts[from].Send(t.Context(), to, e, make([]byte, size))
					sent.Add(1)
				}
				done <- err
			}()
			synctest.Wait()
			if got := sent.Load(); got > mailbox.DefaultLimit/size+1 {
				t.Errorf("rank %d buffers %d messages of rank %d", to, got, from)
			}
			for range count {
				if err := ts[to].Recv(t.Context(), from, e, make([]byte, size)); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// A peer that lets a planned pair rest breaks the protocol.
func TestPlannedPairMustNotRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, far := pipedPair()
		go func() { _, _ = far[dataStream].Write(frame(wire.Header{Kind: wire.Rest}, "")) }()
		err := e.Recv(t.Context(), 1, transport.Envelope{}, nil)
		if err == nil || !strings.Contains(err.Error(), errProtocol.Error()) {
			t.Errorf("got %v, want that the peer %v", err, errProtocol)
		}
		for _, c := range far {
			_ = c.Close()
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}
