package mem_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mem"
)

func view(epoch uint64, ids ...elastic.ID) elastic.View {
	v := elastic.View{Epoch: epoch, Voters: ids}
	for i, id := range ids {
		v.Members = append(v.Members, elastic.Member{ID: id, Index: i})
	}
	return v
}

// take returns the next n events of id as text.
func take(w *mem.Network, id elastic.ID, n int) (out []string) {
	for range n {
		e, ok := <-w.Member(id).Events()
		switch {
		case !ok:
			out = append(out, "end")
		case e.Kind == elastic.PeerMessage:
			out = append(out, fmt.Sprintf("%s says %s", e.Peer, e.Data))
		case e.Kind == elastic.PeerUp:
			out = append(out, fmt.Sprintf("%s up", e.Peer))
		default:
			out = append(out, fmt.Sprintf("%s down: %v", e.Peer, e.Err))
		}
	}
	return out
}

func wantEvents(t *testing.T, w *mem.Network, id elastic.ID, want ...string) {
	t.Helper()
	if got := take(w, id, len(want)); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s saw %q, want %q", id, got, want)
	}
}

func send(t *testing.T, w *mem.Network, from, to elastic.ID, text string) {
	t.Helper()
	if err := w.Member(from).Send(t.Context(), to, []byte(text)); err != nil {
		t.Error(err)
	}
}

func TestControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mem.NewNetwork()
		w.Member("b") // b exists, and does not listen yet
		send(t, w, "a", "b", "one")
		send(t, w, "a", "b", "two")
		send(t, w, "b", "a", "three")
		wantEvents(t, w, "b", "a up", "a says one", "a says two")
		send(t, w, "c", "b", "four")
		wantEvents(t, w, "b", "c up", "c says four")
		wantEvents(t, w, "a", "b up", "b says three")
		w.Kill("a")
		wantEvents(t, w, "a", "end")
		wantEvents(t, w, "b", "a down: stream reset")
		if err := w.Member("c").Close(); err != nil {
			t.Error(err)
		}
		wantEvents(t, w, "b", "c down: stream reset")
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		wantEvents(t, w, "b", "end")
	})
}

func TestControlErrors(t *testing.T) {
	w := mem.NewNetwork()
	a := w.Member("a")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Send(ended, "b", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
	if err := a.Send(t.Context(), "b", make([]byte, elastic.MaxControl+1)); err == nil {
		t.Error("a message above the limit was sent")
	}
	if err := a.Send(t.Context(), "a", nil); err == nil {
		t.Error("sent to itself")
	}
	w.Kill("b")
	if err := a.Send(t.Context(), "b", nil); err == nil {
		t.Error("sent to the dead")
	}
	if err := w.Member("b").Send(t.Context(), "a", nil); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("sent by the dead: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// connect calls Connect for each member in a goroutine.
func connect(ctx context.Context, w *mem.Network, v elastic.View, ranks ...int) (map[int]transport.Transport, map[int]error) {
	type result struct {
		rank int
		t    transport.Transport
		err  error
	}
	results := make(chan result)
	for _, rank := range ranks {
		go func() {
			t, err := w.Member(v.Members[rank].ID).Connect(ctx, v, rank)
			results <- result{rank, t, err}
		}()
	}
	ts, errs := make(map[int]transport.Transport), make(map[int]error)
	for range ranks {
		r := <-results
		ts[r.rank], errs[r.rank] = r.t, r.err
	}
	return ts, errs
}

func TestConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mem.NewNetwork()
		v := view(1, "a", "b", "c")
		ts, errs := connect(t.Context(), w, v, 0, 1, 2)
		for rank, err := range errs {
			if err != nil {
				t.Fatalf("rank %d: %v", rank, err)
			}
		}
		go ts[2].Send(t.Context(), 0, transport.Envelope{}, []byte("hi"))
		buf := make([]byte, 2)
		if err := ts[0].Recv(t.Context(), 2, transport.Envelope{}, buf); err != nil || string(buf) != "hi" {
			t.Errorf("%q, %v", buf, err)
		}
		w.Kill("b")
		var lost *transport.PeerError
		if err := ts[0].Recv(t.Context(), 2, transport.Envelope{}, buf); !errors.As(err, &lost) || lost.Rank != 1 {
			t.Errorf("after the death of rank 1: %v", err)
		}
		if _, errs := connect(t.Context(), w, view(2, "a", "b"), 0); !errors.As(errs[0], &lost) || lost.Rank != 1 {
			t.Errorf("connect to the dead: %v", errs[0])
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestConnectErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mem.NewNetwork()
		v := view(1, "a", "b", "c")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, errs := connect(ctx, w, v, 0, 1)
		for rank, err := range errs {
			var lost *transport.PeerError
			if !errors.As(err, &lost) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("rank %d waited for a member that never came: %v", rank, err)
			}
		}
		if _, err := w.Member("a").Connect(t.Context(), v, 1); !errors.Is(err, collective.ErrArgument) {
			t.Errorf("another's rank: %v", err)
		}
		if ts, errs := connect(t.Context(), w, v, 0, 1, 2); ts[0] == nil || ts[1] == nil || ts[2] == nil {
			t.Errorf("after an attempt that failed: %v", errs)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestDeathDuringConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mem.NewNetwork()
		v := view(1, "a", "b", "c")
		go func() {
			synctest.Wait()
			w.Kill("b")
		}()
		_, errs := connect(t.Context(), w, v, 0, 1)
		for rank, err := range errs {
			var lost *transport.PeerError
			if rank == 0 && (!errors.As(err, &lost) || lost.Rank != 1) || rank == 1 && !errors.Is(err, transport.ErrClosed) {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		if _, errs := connect(t.Context(), w, view(2, "a", "b"), 1); !errors.Is(errs[1], transport.ErrClosed) {
			t.Errorf("the dead connects: %v", errs[1])
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}
