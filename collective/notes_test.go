package collective_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
)

// A note comes while its receiver is in a call, and the handler answers. Nothing comes for a handler that is gone, a note that is too
// long, and from ranks outside the communicator. Ranks are those of the communicator.
func TestNotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster.Run(t, 4, func(ctx context.Context, c *collective.Comm) error {
			part, err := collective.Split(ctx, c, c.Rank()%2, -c.Rank()) // ranks 2, 0 and 3, 1
			if err != nil {
				return err
			}
			n := part.Notes()
			got := make(chan string, 8)
			n.Handle(func(from int, note []byte) {
				got <- fmt.Sprintf("%s of %d", note, from)
				if bytes.Equal(note, []byte("ask")) {
					n.Send(from, []byte("answer"))
				}
			})
			if err := collective.Barrier(ctx, c); err != nil {
				return err
			}
			if part.Rank() == 0 {
				n.Send(1, make([]byte, collective.MaxNote+1))
				n.Send(1, []byte("ask"))
				<-time.After(time.Second) // the others wait in the barrier
				if s := <-got; s != "answer of 1" {
					t.Errorf("rank %d of the part got %q", part.Rank(), s)
				}
				if c.Rank() == 3 {
					c.Notes().Send(2, []byte("from outside"))
				}
			}
			if err := collective.Barrier(ctx, c); err != nil {
				return err
			}
			if part.Rank() == 1 {
				if s := <-got; s != "ask of 0" {
					t.Errorf("rank %d of the part got %q", part.Rank(), s)
				}
			}
			n.Handle(nil)
			if err := collective.Barrier(ctx, c); err != nil {
				return err
			}
			n.Send(1-part.Rank(), []byte("late"))
			<-time.After(time.Second)
			if len(got) > 0 {
				t.Errorf("rank %d of the part got %q, too", part.Rank(), <-got)
			}
			return nil
		})
	})
}

// The zero value, and notes of no communicator, carry nothing.
func TestNoNotes(t *testing.T) {
	var c *collective.Comm
	for _, n := range []collective.Notes{{}, c.Notes()} {
		n.Send(0, []byte("x"))
		n.Handle(func(int, []byte) { t.Error("a note") })
	}
}
