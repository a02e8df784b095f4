package collective_test

import (
	"context"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/transport/mem"
)

// slowNetwork is a transport in memory on which some messages of rank 0 are slow. If lose is set,
// signals for which it returns true are lost.
type slowNetwork struct {
	ends []*mem.Transport
	slow func(e transport.Envelope) bool
	lose func(from, to int) bool
}

// slowness is the duration of a slow message: many times the wait after which the watchdog asks.
const slowness = 5 * time.Second

// newSlowNetwork returns a network of n ranks on which the messages of Send by rank 0 are slow, and
// messages of collective calls are not.
func newSlowNetwork(n int) *slowNetwork {
	return &slowNetwork{ends: mem.New(n), slow: func(e transport.Envelope) bool { return e.Call.Kind == transport.KindPoint }}
}

func (s *slowNetwork) transports() []transport.Transport {
	var all []transport.Transport
	for rank, e := range s.ends {
		all = append(all, &slowTransport{e, s, rank})
	}
	return all
}

type slowTransport struct {
	*mem.Transport
	g    *slowNetwork
	rank int
}

func (s *slowTransport) Send(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
	if s.rank == 0 && s.g.slow(e) {
		timer := time.NewTimer(slowness)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return s.Transport.Send(ctx, to, e, buf)
}

func (s *slowTransport) Signal(to int, msg []byte) {
	if s.g.lose == nil || !s.g.lose(s.rank, to) {
		s.Transport.Signal(to, msg)
	}
}
