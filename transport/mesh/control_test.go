package mesh

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
)

// opening is a carrier that opens streams slowly, and keeps their other ends.
type opening struct {
	Carrier // nil: methods that opening does not define are not called
	far     []net.Conn
}

func (*opening) ID() elastic.ID { return "a" }

func (o *opening) Open(context.Context, elastic.ID, Kind) (Stream, error) {
	<-time.After(time.Second)
	near, far := net.Pipe()
	o.far = append(o.far, far)
	return piped{near}, nil
}

// Callers that need a stream at the same time share one, so that their messages cannot overtake each other. A peer
// has at most maxControls streams. Each is forgotten when it ends.
func TestControlStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life := newLifetime()
		events := newEventQueue(func(elastic.ID) {})
		defer events.stop()
		o := new(opening)
		c := newControlPlane(o, life, events)
		got := make(chan *controlStream)
		for range 3 {
			go func() {
				s, err := c.stream(t.Context(), "b")
				if err != nil {
					t.Error(err)
				}
				got <- s
			}()
		}
		if a, b, d := <-got, <-got, <-got; a != b || b != d || len(o.far) != 1 {
			t.Errorf("%d streams were opened for three callers", len(o.far))
		}
		for i := 1; i <= maxControls; i++ {
			near, far := net.Pipe()
			o.far = append(o.far, far)
			go c.accept(piped{near})
			synctest.Wait()
			if n := len(c.streams["b"]); n != min(1+i, maxControls) {
				t.Errorf("%d streams after %d more", n, i)
			}
		}
		life.end()
		for _, far := range o.far {
			_ = far.Close()
		}
		life.working.Wait()
		if len(c.streams) != 0 {
			t.Error("streams that have ended are still known")
		}
		if _, err := c.add(piped{o.far[0]}); err == nil {
			t.Error("a stream was added after the end")
		}
		if err := c.open(t.Context(), "a"); !errors.Is(err, errSelf) {
			t.Errorf("a stream to the process itself: %v", err)
		}
	})
}

// Two sides that send at the same time read on while their acknowledgements wait, although the
// connection has no buffer.
func TestAcknowledgementsDoNotBlockReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		sides := []*controlStream{newControl(piped{near}), newControl(piped{far})}
		const messages = 5
		got := make([]int, len(sides))
		var reading sync.WaitGroup
		for i, s := range sides {
			reading.Go(func() {
				_ = readMessages(s, s.acknowledged, func([]byte) { // ends with the stream
					s.acknowledge()
					got[i]++
				})
				s.acks.Wait()
			})
			reading.Go(func() {
				for range messages {
					if err := s.takeTurn(t.Context()); err != nil {
						t.Error(err)
						return
					}
					if err := s.write(t.Context(), []byte("message")); err != nil {
						t.Error(err)
					}
					<-s.turn
				}
			})
		}
		synctest.Wait()
		for i, s := range sides {
			if s.pending != 0 || got[i] != messages {
				t.Errorf("side %d: %d messages came, %d of its own are not acknowledged", i, got[i], s.pending)
			}
			_ = s.Reset()
		}
		reading.Wait()
	})
}
