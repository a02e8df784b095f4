package mailbox

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/internal/race"
)

// model is a simple and slow model of a source. Receive i under a key gets message i as soon as
// that message is complete. No other event ends a receive.
type model struct {
	box      *Box
	sent     [3][]*modelMessage
	received [3][]*pending
	checked  [3][]bool
}

type modelMessage struct {
	m    *Message // nil when the message is complete
	text string
}

func (o *model) accept(t *rapid.T, k, size int) {
	text := fmt.Sprintf("%d.%d%*s", k, len(o.sent[k]), size, "")
	m, err := o.box.Accept(1, env(uint32(k)), len(text))
	if err != nil {
		t.Fatalf("accept: %v", err)
	}
	copy(m.Buf, text)
	o.sent[k] = append(o.sent[k], &modelMessage{m, text})
}

// receive asks for the next message under k. If no message has arrived under k, size determines the size of all messages under k.
func (m *model) receive(k, size int) {
	n := len(fmt.Sprintf("%d.%d%*s", k, len(m.received[k]), size, ""))
	m.received[k] = append(m.received[k], recv(context.Background(), m.box, 1, env(uint32(k)), n))
	m.checked[k] = append(m.checked[k], false)
}

// done completes an incomplete message under k, if there is one.
func (o *model) done(t *rapid.T, k int) {
	var open []*modelMessage
	for _, m := range o.sent[k] {
		if m.m != nil {
			open = append(open, m)
		}
	}
	if len(open) == 0 {
		return
	}
	m := rapid.SampledFrom(open).Draw(t, "message")
	m.m.Done()
	m.m = nil
}

func (o *model) check(t *rapid.T) {
	held, waiting := 0, 0
	for k := range o.sent {
		for i, p := range o.received[k] {
			want := i < len(o.sent[k]) && o.sent[k][i].m == nil
			if got := o.checked[k][i] || p.ended(); got != want {
				t.Fatalf("receive %d.%d returned: %v, want %v", k, i, got, want)
			}
			if !want || o.checked[k][i] {
				continue
			}
			o.checked[k][i] = true
			if err := <-p.done; err != nil || string(p.buf) != o.sent[k][i].text {
				t.Fatalf("received %q, %v; want %q", p.buf, err, o.sent[k][i].text)
			}
		}
		waiting += max(0, len(o.received[k])-len(o.sent[k]))
		for _, m := range o.sent[k][min(len(o.received[k]), len(o.sent[k])):] {
			held += len(m.text) + overhead
		}
	}
	s := &o.box.sources[1]
	if s.heldBytes != held || s.waiting != waiting {
		t.Fatalf("held %d, waiting %d; want %d, %d", s.heldBytes, s.waiting, held, waiting)
	}
	if out := s.openLocked(); out != (waiting > 0 || held <= limit) {
		t.Fatalf("open: %v with %d held, %d waiting", out, held, waiting)
	}
}

func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Hides the Deadline method of *testing.T, which rapid would call and which is forbidden in a bubble.
		rapid.Check(struct{ *testing.T }{t}, func(t *rapid.T) {
			o := &model{box: newBox()}
			size := rapid.SampledFrom([]int{0, 300, 3000}).Draw(t, "size")
			for range rapid.IntRange(1, 40).Draw(t, "steps") {
				k := rapid.IntRange(0, 2).Draw(t, "key")
				switch rapid.SampledFrom([]string{"accept", "receive", "done"}).Draw(t, "op") {
				case "accept":
					o.accept(t, k, size)
				case "receive":
					o.receive(k, size)
				case "done":
					o.done(t, k)
				}
				synctest.Wait()
				o.check(t)
			}
			o.finish(t)
		})
	})
}

// finish fails the box while messages are in all states, and checks that all receives return.
func (o *model) finish(t *rapid.T) {
	o.box.Fail(transport.ErrClosed)
	synctest.Wait()
	for k := range o.sent {
		for _, m := range o.sent[k] {
			if m.m != nil {
				m.m.Abort()
			}
		}
	}
	synctest.Wait()
	for k := range o.received {
		for i, p := range o.received[k] {
			if o.checked[k][i] {
				continue
			}
			if err := <-p.done; err != transport.ErrClosed {
				t.Fatalf("receive %d.%d after the failure: %v", k, i, err)
			}
		}
	}
}

// Several senders and receivers run concurrently, with little room. This is for the race detector.
func TestStress(t *testing.T) {
	const keys, each = 6, 300
	b := newBox()
	var g sync.WaitGroup
	for k := range keys {
		g.Go(func() {
			for i := range each {
				if err := b.WaitRoom(1, nil, nil); err != nil {
					t.Error(err)
					return
				}
				arrive(t, b, 1, env(uint32(k)), stressText(k, i))
			}
		})
		g.Go(func() {
			for i := range each {
				want := stressText(k, i)
				buf := make([]byte, len(want))
				if err := b.Recv(context.Background(), 1, env(uint32(k)), buf); err != nil || string(buf) != want {
					t.Errorf("received %.10q, %v; want %.10q", buf, err, want)
					return
				}
			}
		})
	}
	g.Wait()
	if s := &b.sources[1]; s.heldBytes != 0 || s.waiting != 0 || s.sleepers != 0 || len(s.slots) != 0 {
		t.Errorf("left: held %d, waiting %d, sleepers %d, slots %d", s.heldBytes, s.waiting, s.sleepers, len(s.slots))
	}
}

func stressText(k, i int) string { return fmt.Sprintf("%d.%d%*s", k, i, (i*37+k)%700, "") }

func TestAllocations(t *testing.T) {
	b := newBox()
	buf := make([]byte, 512)
	seq := uint32(0)
	unasked := testing.AllocsPerRun(1000, func() {
		seq++ // each message has a new key, as in collectives
		m, err := b.Accept(1, env(seq), len(buf))
		if err != nil {
			t.Fatal(err)
		}
		m.Done()
		if err := b.Recv(context.Background(), 1, env(seq), buf); err != nil {
			t.Fatal(err)
		}
	})
	asked := testing.AllocsPerRun(1000, func() {
		seq++
		s := &b.sources[1]
		r := b.receives.Get().(*receive)
		r.env, r.buf = env(seq), buf
		s.match(r)
		m, err := b.Accept(1, env(seq), len(buf))
		if err != nil {
			t.Fatal(err)
		}
		m.Done()
		if err := <-r.ready; err != nil {
			t.Fatal(err)
		}
		b.receives.Put(r)
	})
	// The race detector drops pooled memory at random.
	if !race.Enabled && (unasked != 0 || asked != 0) {
		t.Errorf("%v allocations unasked for, %v asked for", unasked, asked)
	}
}

func TestPoolClasses(t *testing.T) {
	var p pool
	for _, size := range []int{0, 1, 255, 256, 257, 4096, 1 << 20, 1<<20 + 1, 1<<maxClass + 1} {
		m := p.get(size)
		if len(m.Buf) != size {
			t.Errorf("%d bytes, want %d", len(m.Buf), size)
		}
		if size <= 1<<maxClass && len(m.store) > max(2*size, 1<<minClass) {
			t.Errorf("%d bytes of store for %d", len(m.store), size)
		}
		p.put(m)
	}
}

func BenchmarkMatch(b *testing.B) {
	box := newBox()
	buf := make([]byte, 64)
	b.ReportAllocs()
	for i := range b.N {
		m, err := box.Accept(1, env(uint32(i)), len(buf))
		if err != nil {
			b.Fatal(err)
		}
		m.Done()
		if err := box.Recv(context.Background(), 1, env(uint32(i)), buf); err != nil {
			b.Fatal(err)
		}
	}
}
