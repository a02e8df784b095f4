package mesh

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/internal/direct"
)

const hang = 4 * time.Minute

// sock is a Unix socket as a Stream that passes files.
type sock struct {
	*direct.Conn
	peer elastic.ID
}

func (s sock) Peer() elastic.ID { return s.peer }
func (s sock) Path() event.Path { return event.Path{Kind: "unix"} }

// plug makes pairs of connected Unix sockets.
type plug struct {
	port *direct.Port
	id   string // of the port
}

func newPlug(t testing.TB) plug {
	t.Helper()
	id := rand.Text()
	port, err := direct.Open(direct.Config{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Close() })
	if o := port.Offer(direct.NewTicket()); o.KernelID == [32]byte{} {
		t.Skip("no Unix sockets")
	}
	return plug{port, id}
}

// pair returns both ends of a socket.
func (p plug) pair(ctx context.Context, a, b elastic.ID) (toB, toA sock, err error) {
	o := p.port.Offer(direct.NewTicket())
	w := p.port.Expect(o.Ticket, nil)
	defer w.Cancel()
	near, err := direct.Dial(ctx, direct.UnixTarget(p.id), o.Ticket, nil)
	if err != nil {
		return sock{}, sock{}, err
	}
	far, err := w.Wait(ctx)
	if err != nil {
		return sock{}, sock{}, errors.Join(err, near.Close())
	}
	return sock{near, b}, sock{far, a}, nil
}

// oneHost is a host whose processes reach each other only by Unix sockets.
type oneHost struct {
	plug
	mu   sync.Mutex
	ends map[elastic.ID]*hostCarrier
}

// hostCarrier is the Carrier of a process of a oneHost.
type hostCarrier struct {
	*oneHost
	id     elastic.ID
	take   func(Kind, Stream)
	taking sync.WaitGroup

	closed bool // guarded by oneHost.mu
	open   []Stream
}

func (h *hostCarrier) ID() elastic.ID                     { return h.id }
func (h *hostCarrier) Introduce([]elastic.Member) error   { return nil }
func (h *hostCarrier) Handle(take func(k Kind, s Stream)) { h.take = take }
func (h *hostCarrier) HangUp(elastic.ID)                  {}

// add registers a stream, which the Close of the carrier ends.
func (h *hostCarrier) add(s Stream) bool {
	if !h.closed {
		h.open = append(h.open, s)
	}
	return !h.closed
}

func (h *hostCarrier) Open(ctx context.Context, to elastic.ID, k Kind) (Stream, error) {
	near, far, err := h.pair(ctx, h.id, to)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	other := h.ends[to]
	if other == nil || !h.add(near) || !other.add(far) {
		return nil, errors.Join(elastic.ErrGone, near.Close(), far.Close())
	}
	other.taking.Go(func() { other.take(k, far) })
	return near, nil
}

func (h *hostCarrier) Close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	for _, s := range h.open {
		_ = s.Reset()
	}
	h.taking.Wait()
	return nil
}

// startOnHost starts processes of one host, one for each element of ways, which are names of Paths.
func startOnHost(t testing.TB, ways ...string) ([]*Mesh, elastic.View) {
	t.Helper()
	h := &oneHost{plug: newPlug(t), ends: make(map[elastic.ID]*hostCarrier)}
	var ms []*Mesh
	v := elastic.View{Epoch: 1}
	for i, way := range ways {
		l := &hostCarrier{oneHost: h, id: elastic.ID(fmt.Sprint("peer ", i))}
		m := New(l, Config{Job: "test", Path: Path(slices.Index(Paths(), way)), KernelID: [32]byte{1}})
		t.Cleanup(func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
		h.mu.Lock()
		h.ends[l.id] = l
		h.mu.Unlock()
		ms = append(ms, m)
		v.Members = append(v.Members, elastic.Member{ID: l.id, Index: i})
	}
	return ms, v
}

// following returns the view after v, of some of its members.
func following(v elastic.View, ranks ...int) elastic.View {
	next := elastic.View{Epoch: v.Epoch + 1, Parent: v.Hash()}
	for _, r := range ranks {
		next.Members = append(next.Members, v.Members[r])
	}
	return next
}

// mustMeet has all processes of ms enter a view; ms are in rank order.
func mustMeet(t testing.TB, ms []*Mesh, v elastic.View) []*Transport {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	ts, errs := make([]*Transport, len(ms)), make([]error, len(ms))
	var all sync.WaitGroup
	for rank := range ms {
		all.Go(func() { ts[rank], errs[rank] = ms[rank].connect(ctx, v, rank) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return ts
}

// endAll closes transports at the same time, as ranks do.
func endAll(t testing.TB, ts []*Transport) {
	t.Helper()
	done := make(chan error)
	for _, e := range ts {
		go func() { done <- e.Close() }()
	}
	for range ts {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// talk sends a message from each rank to each other rank, and receives all messages.
func talk(t testing.TB, ts []*Transport) {
	t.Helper()
	for a, from := range ts {
		for b := range ts {
			if a == b {
				continue
			}
			if err := from.Send(t.Context(), b, transport.Envelope{Seq: 1}, []byte{byte(a)}); err != nil {
				t.Error(err)
			}
		}
	}
	for b, to := range ts {
		for a := range ts {
			if a == b {
				continue
			}
			got := []byte{255}
			if err := to.Recv(t.Context(), a, transport.Envelope{Seq: 1}, got); err != nil || got[0] != byte(a) {
				t.Errorf("from %d to %d came %d, %v", a, b, got[0], err)
			}
		}
	}
}

// wantPath checks how rank a reaches rank b.
func wantPath(t testing.TB, ts []*Transport, a, b int, kind, why string) {
	t.Helper()
	p := ts[a].Path(b)
	if p.Kind != kind || !strings.Contains(p.Why, why) || (why == "") != (p.Why == "") {
		t.Errorf("rank %d reaches %d by %s (%s), want %s (%s)", a, b, p.Kind, p.Why, kind, why)
	}
}

// closeAll closes meshes before the test looks for files that they have left open.
func closeAll(t testing.TB, ms []*Mesh) {
	t.Helper()
	for _, m := range ms {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
