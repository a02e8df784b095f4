package transporttest

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/transport/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broken is an in-memory transport with one planted mistake.
type broken struct {
	*mem.Transport
	send   func(ctx context.Context, to int, e transport.Envelope, buf []byte) error
	recv   func(ctx context.Context, from int, e transport.Envelope, buf []byte) error
	post   func(from int, e transport.Envelope, buf []byte) transport.Posted
	signal func(to int, msg []byte)
	revoke func(cause error)
	close  func() error
}

func (b *broken) Send(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
	return b.send(ctx, to, e, buf)
}

func (b *broken) Recv(ctx context.Context, from int, e transport.Envelope, buf []byte) error {
	return b.recv(ctx, from, e, buf)
}

func (b *broken) Post(from int, e transport.Envelope, buf []byte) transport.Posted {
	return b.post(from, e, buf)
}

func (b *broken) Signal(to int, msg []byte) { b.signal(to, msg) }
func (b *broken) Revoke(cause error)        { b.revoke(cause) }
func (b *broken) Close() error              { return b.close() }

func newBroken(t *mem.Transport) *broken {
	return &broken{Transport: t, send: t.Send, recv: t.Recv, post: t.Post, signal: t.Signal, revoke: t.Revoke, close: t.Close}
}

// late is a posted receive that begins only when Wait is called.
type late func(ctx context.Context) error

func (l late) Wait(ctx context.Context) error { return l(ctx) }

// mistake is a planted mistake, and the check that must find it.
type mistake struct {
	plant func(b *broken)
	found string
}

func messageMistakes() map[string]mistake {
	return map[string]mistake{
		"none": {func(*broken) {}, ""},
		"empty messages are lost": {func(b *broken) {
			send := b.send
			b.send = func(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
				if len(buf) == 0 {
					return nil
				}
				return send(ctx, to, e, buf)
			}
		}, "2 zero length"},
		"one message at a time": {func(b *broken) {
			send, turn := b.send, make(chan struct{}, 1)
			b.send = func(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
				select {
				case turn <- struct{}{}:
					defer func() { <-turn }()
				case <-ctx.Done():
					return ctx.Err()
				}
				for range len(buf) >> 20 { // waits until the receiver asks for it
					if err := send(ctx, to, tag(1000), nil); err != nil {
						return err
					}
					<-ctx.Done()
				}
				return send(ctx, to, e, buf)
			}
		}, "2 an unasked-for message blocks no other"},
		"a posted receive begins when it is waited for": {func(b *broken) {
			b.post = func(from int, e transport.Envelope, buf []byte) transport.Posted {
				return late(func(ctx context.Context) error { return b.recv(ctx, from, e, buf) })
			}
		}, "1 a posted receive is asked for"},
		"the last byte is wrong": {func(b *broken) {
			recv := b.recv
			b.recv = func(ctx context.Context, from int, e transport.Envelope, buf []byte) error {
				err := recv(ctx, from, e, buf)
				if len(buf) > 1000 {
					buf[len(buf)-1]++
				}
				return err
			}
		}, "ring"},
	}
}

func orderMistakes() map[string]mistake {
	return map[string]mistake{
		"messages are swapped": {func(b *broken) {
			var held []byte
			send := b.send
			b.send = func(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
				if held == nil {
					held = append([]byte{}, buf...)
					return nil
				}
				first := held
				held = nil
				return errors.Join(send(ctx, to, e, buf), send(ctx, to, e, first))
			}
		}, "2 order within a tag"},
		"urgent messages go before all others": {func(b *broken) {
			var mu sync.Mutex
			var held []func() error // messages that are not urgent
			send := b.send
			b.send = func(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
				mu.Lock()
				defer mu.Unlock()
				if e.Priority < 0 {
					buf = append([]byte{}, buf...)
					held = append(held, func() error { return send(ctx, to, e, buf) })
					return nil
				}
				err := send(ctx, to, e, buf)
				for _, late := range held {
					err = errors.Join(err, late())
				}
				held = nil
				return err
			}
		}, "2 priorities change no order within a tag"},
	}
}

func envelopeMistakes() map[string]mistake {
	return map[string]mistake{
		"communicators are mixed up": {func(b *broken) {
			send, recv := b.send, b.recv
			b.send = func(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
				e.Comm = 0
				return send(ctx, to, e, buf)
			}
			b.recv = func(ctx context.Context, from int, e transport.Envelope, buf []byte) error {
				e.Comm = 0
				return recv(ctx, from, e, buf)
			}
		}, "6 epochs are separate"},
		"calls are not compared": {func(b *broken) {
			send, recv := b.send, b.recv
			b.send = func(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
				e.Call = transport.Call{}
				return send(ctx, to, e, buf)
			}
			b.recv = func(ctx context.Context, from int, e transport.Envelope, buf []byte) error {
				e.Call = transport.Call{}
				return recv(ctx, from, e, buf)
			}
		}, "1 other call is a mismatch"},
	}
}

func endMistakes() map[string]mistake {
	return map[string]mistake{
		"a revocation stays local": {func(b *broken) { b.revoke = func(error) {} },
			"4 Recv ended by a revocation elsewhere"},
		"causes lose their type": {func(b *broken) {
			revoke := b.revoke
			b.revoke = func(cause error) { revoke(errors.New(cause.Error())) }
		}, "5 causes arrive as they were"},
		"signals are lost": {func(b *broken) { b.signal = func(int, []byte) {} }, "8 signals arrive in order"},
		"close is a crash": {func(b *broken) {
			b.close = func() error {
				b.Kill()
				return nil
			}
		}, "9 what was sent before Close arrives"},
		"close does nothing": {func(b *broken) { b.close = func() error { return nil } },
			"9 waiting for a closed rank"},
	}
}

func TestPlantedMistakes(t *testing.T) {
	all := messageMistakes()
	maps.Copy(all, orderMistakes())
	maps.Copy(all, envelopeMistakes())
	maps.Copy(all, endMistakes())
	for name, m := range all {
		t.Run(name, func(t *testing.T) {
			for _, c := range checks() {
				if m.found != "" && !strings.HasSuffix(c.name, m.found) {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					err := runOne(t, c, func() []transport.Transport { return plant(c.ranks, m.plant) }, Options{Kill: func(e transport.Transport) {
						e.(*broken).Kill()
					}})
					if (err != nil) != (m.found != "") {
						t.Errorf("%s: %v", c.name, err)
					}
				})
			}
		})
	}
}

func plant(n int, mistake func(*broken)) []transport.Transport {
	out := make([]transport.Transport, n)
	for i, t := range mem.New(n) {
		b := newBroken(t)
		mistake(b)
		out[i] = b
	}
	return out
}
