package mailbox

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
)

const limit = 1 << 10

// newBox returns the box of rank 0 in a group of 3. Its revoke function calls Fail, as a transport does.
func newBox() *Box {
	var b *Box
	b = New(0, 3, limit, func(err error) { b.Fail(err) })
	return b
}

func env(seq uint32) transport.Envelope {
	return transport.Envelope{Comm: 7, Seq: seq, Call: transport.Call{Kind: transport.KindBarrier, Root: -1}}
}

// pending is a Recv that runs in a goroutine of its own.
type pending struct {
	buf  []byte
	done chan error
}

func recv(ctx context.Context, b *Box, from int, e transport.Envelope, size int) *pending {
	p := &pending{make([]byte, size), make(chan error, 1)}
	go func() { p.done <- b.Recv(ctx, from, e, p.buf) }()
	return p
}

// ended reports whether the Recv has returned. Use it only after synctest.Wait.
func (p *pending) ended() bool { return len(p.done) == 1 }

// arrive delivers one complete message.
func arrive(t *testing.T, b *Box, from int, e transport.Envelope, payload string) {
	t.Helper()
	m, err := b.Accept(from, e, len(payload))
	if err != nil {
		t.Fatalf("accept: %v", err)
	}
	copy(m.Buf, payload)
	m.Done()
}

func wantText(t *testing.T, p *pending, want string) {
	t.Helper()
	if err := <-p.done; err != nil || string(p.buf) != want {
		t.Errorf("received %q, %v; want %q", p.buf, err, want)
	}
}

func TestPostedReceiveIsFilledInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox()
		p := recv(t.Context(), b, 1, env(1), 3)
		synctest.Wait()
		m, err := b.Accept(1, env(1), 3)
		if err != nil {
			t.Fatal(err)
		}
		if &m.Buf[0] != &p.buf[0] {
			t.Error("the message has a buffer of its own")
		}
		copy(m.Buf, "abc")
		synctest.Wait()
		if p.ended() {
			t.Error("received before the message was complete")
		}
		m.Done()
		wantText(t, p, "abc")
	})
}

func TestReceiveOfArrivingMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox()
		m, err := b.Accept(1, env(1), 3)
		if err != nil {
			t.Fatal(err)
		}
		p := recv(t.Context(), b, 1, env(1), 3)
		synctest.Wait()
		copy(m.Buf, "abc")
		m.Done()
		wantText(t, p, "abc")
	})
}

func TestOrderAndIndependence(t *testing.T) {
	b := newBox()
	arrive(t, b, 1, env(1), "one")
	arrive(t, b, 1, env(1), "two")
	arrive(t, b, 1, env(2), "tag")
	arrive(t, b, 2, env(1), "far")
	arrive(t, b, 1, env(3), "")
	other := env(1)
	other.Comm = 8
	arrive(t, b, 1, other, "com")
	for _, want := range []struct {
		from int
		e    transport.Envelope
		text string
	}{{1, env(3), ""}, {1, other, "com"}, {2, env(1), "far"}, {1, env(2), "tag"}, {1, env(1), "one"}, {1, env(1), "two"}} {
		wantText(t, recv(t.Context(), b, want.from, want.e, len(want.text)), want.text)
	}
}

func TestMismatch(t *testing.T) {
	other := env(1)
	other.Call.Kind = transport.KindAllReduce
	tests := map[string]struct {
		sent transport.Envelope
		size int
		want transport.MismatchError
	}{
		"length": {env(1), 4, transport.MismatchError{RankB: 1, A: env(1).Call, B: env(1).Call,
			Detail: "rank 1 sent 4 bytes, rank 0 expected 3"}},
		"call": {other, 3, transport.MismatchError{RankB: 1, A: env(1).Call, B: other.Call}},
	}
	check := func(t *testing.T, got error, want transport.MismatchError) {
		t.Helper()
		var m *transport.MismatchError
		if !errors.As(got, &m) || *m != want {
			t.Errorf("got %v, want %v", got, &want)
		}
	}
	for name, test := range tests {
		t.Run(name+", receive first", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBox()
				p := recv(t.Context(), b, 1, env(1), 3)
				synctest.Wait()
				_, err := b.Accept(1, test.sent, test.size)
				check(t, err, test.want)
				check(t, <-p.done, test.want)
				check(t, b.Cause(), test.want)
			})
		})
		t.Run(name+", message first", func(t *testing.T) {
			b := newBox()
			arrive(t, b, 1, test.sent, "abcd"[:test.size])
			check(t, b.Recv(t.Context(), 1, env(1), make([]byte, 3)), test.want)
			check(t, b.Cause(), test.want)
		})
	}
}

func TestRankOutOfRange(t *testing.T) {
	b := newBox()
	for _, rank := range []int{-1, 3} {
		if err := b.Recv(t.Context(), rank, env(1), nil); !errors.Is(err, collective.ErrArgument) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if b.Cause() != nil {
		t.Error("a bad argument revoked")
	}
}

func TestFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := errors.New("first"), errors.New("second")
		b := newBox()
		arrive(t, b, 1, env(5), "kept")
		p := recv(t.Context(), b, 1, env(1), 3)
		synctest.Wait()
		if !b.Fail(first) || b.Fail(second) {
			t.Error("Fail reports the wrong call as the first")
		}
		if err := <-p.done; err != first {
			t.Errorf("pending: %v", err)
		}
		if err := b.Recv(t.Context(), 1, env(5), make([]byte, 4)); err != first {
			t.Errorf("later, though a message was there: %v", err)
		}
		if _, err := b.Accept(1, env(1), 1); err != first {
			t.Errorf("accept: %v", err)
		}
		if err := b.WaitRoom(1, nil, nil); err != first {
			t.Errorf("room: %v", err)
		}
		<-b.Failed()
	})
}

func TestCancelUnmatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox()
		ctx, cancel := context.WithCancelCause(t.Context())
		p := recv(ctx, b, 1, env(1), 3)
		synctest.Wait()
		why := errors.New("enough")
		cancel(why)
		err := <-p.done
		for _, want := range []error{context.Canceled, why, transport.ErrRevoked} {
			if !errors.Is(err, want) {
				t.Errorf("%v is not %v", err, want)
			}
		}
		want := transport.AbortError{Rank: 0, Cause: "receive from rank 1: context canceled: enough"}
		got := transport.DecodeCause(2, transport.EncodeCause(0, b.Cause()))
		if a := new(transport.AbortError); !errors.As(got, &a) || *a != want {
			t.Errorf("others see %v, want %v", got, &want)
		}
	})
}

// The caller may reuse its buffer as soon as Recv returns. So Recv must not return while a message is being read into the buffer.
func TestCancelWhileFilling(t *testing.T) {
	for name, let := range map[string]func(*Message){"done": (*Message).Done, "abort": (*Message).Abort} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBox()
				ctx, cancel := context.WithCancel(t.Context())
				p := recv(ctx, b, 1, env(1), 3)
				synctest.Wait()
				m, err := b.Accept(1, env(1), 3)
				if err != nil {
					t.Fatal(err)
				}
				cancel()
				synctest.Wait()
				if b.Cause() == nil {
					t.Error("not revoked")
				}
				if p.ended() {
					t.Error("returned while its buffer was being filled")
				}
				let(m)
				if err := <-p.done; !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// After Abort, calls wait until the transport has set the cause.
func TestAbortWaitsForCause(t *testing.T) {
	lost := &transport.PeerError{Rank: 1, Cause: "reset"}
	for name, first := range map[string]bool{"receive first": true, "message first": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBox()
				var p *pending
				if first {
					p = recv(t.Context(), b, 1, env(1), 3)
					synctest.Wait()
				}
				m, err := b.Accept(1, env(1), 3)
				if err != nil {
					t.Fatal(err)
				}
				if !first {
					p = recv(t.Context(), b, 1, env(1), 3)
					synctest.Wait()
				}
				m.Abort()
				synctest.Wait()
				if p.ended() {
					t.Error("returned before the cause was known")
				}
				b.Fail(lost)
				if err := <-p.done; err != lost {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

func TestAbortUnmatchedIsForgotten(t *testing.T) {
	b := newBox()
	var ms []*Message
	for range 3 {
		m, err := b.Accept(1, env(1), 3)
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, m)
	}
	copy(ms[1].Buf, "mid")
	ms[1].Done()
	ms[2].Abort()
	ms[0].Abort()
	wantText(t, recv(t.Context(), b, 1, env(1), 3), "mid")
	if s := &b.sources[1]; s.heldBytes != 0 || len(s.slots) != 0 {
		t.Errorf("%d bytes held in %d slots", s.heldBytes, len(s.slots))
	}
}

func TestCancelAfterAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox()
		ctx, cancel := context.WithCancel(t.Context())
		p := recv(ctx, b, 1, env(1), 3)
		synctest.Wait()
		m, err := b.Accept(1, env(1), 3)
		if err != nil {
			t.Fatal(err)
		}
		m.Abort()
		synctest.Wait()
		cancel()
		if err := <-p.done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox()
		arrive(t, b, 1, env(1), "kept")
		b.End(1, &transport.PeerError{Rank: 1, Cause: "closed"})
		wantText(t, recv(t.Context(), b, 1, env(1), 4), "kept")
		if b.Cause() != nil {
			t.Error("an end from which nothing is wanted revoked")
		}
		arrive(t, b, 2, env(1), "other")
		wantText(t, recv(t.Context(), b, 2, env(1), 5), "other")
		closed := &transport.PeerError{Rank: 2, Cause: "closed"}
		p, q := recv(t.Context(), b, 2, env(1), 4), recv(t.Context(), b, 2, env(2), 4)
		synctest.Wait()
		b.End(2, closed)
		b.End(2, errors.New("again"))
		for _, p := range []*pending{p, q} {
			if err := <-p.done; err != closed {
				t.Errorf("pending: %v", err)
			}
		}
		if b.Cause() != closed {
			t.Errorf("cause %v", b.Cause())
		}
	})
}

func TestReceiveAfterEndRevokes(t *testing.T) {
	b := newBox()
	closed := &transport.PeerError{Rank: 1, Cause: "closed"}
	b.End(1, closed)
	if err := b.Recv(t.Context(), 1, env(1), nil); err != closed || b.Cause() != closed {
		t.Errorf("got %v, cause %v", err, b.Cause())
	}
}

func TestSignals(t *testing.T) {
	b := newBox()
	data := []byte("hint")
	for range signalQueue + 10 { // the last signals are lost, and nothing blocks
		b.Signal(2, data, false)
	}
	data[0] = 'x'
	if s := <-b.Signals(); s.From != 2 || !bytes.Equal(s.Data, []byte("hint")) {
		t.Errorf("got %d %q", s.From, s.Data)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
