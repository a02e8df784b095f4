package mesh

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/wire"
)

// attemptAt returns the attempt of rank 0 to enter a view of two ranks with the given epoch.
func attemptAt(ctx context.Context, b *binder, epoch uint64) *attempt {
	v := elastic.View{Epoch: epoch, Members: []elastic.Member{{ID: "a"}, {ID: "b"}}}
	return newAttempt(ctx, b, v, 0, nil)
}

// The table lets a process enter later views only. It finds out whether the view of a hello from
// rank 1 is being entered, is still to come, is over, or is refused.
func TestViewTable(t *testing.T) {
	b := newTestBinder()
	hello := func(a *attempt) wire.Greeting {
		g := a.hello
		g.Rank = 1
		return g
	}
	wants := func(what string, a *attempt, want refusal, known bool) {
		t.Helper()
		got, parked, why, _ := b.views.find("b", hello(a))
		if why != want || (got == a) != known || (parked != nil) != (want == accepted && !known) {
			t.Errorf("%s: refusal %d, known %t, parked %t", what, why, got == a, parked != nil)
		}
	}
	first := attemptAt(t.Context(), b, 5)
	wants("before it is entered", first, accepted, false)
	if err := b.views.enter(first); err != nil {
		t.Fatal(err)
	}
	wants("while it is entered", first, accepted, true)
	other := attemptAt(t.Context(), b, 5)
	other.hello.Lineage[0]++
	wants("another view of the epoch", other, refused, false)
	b.views.entered(first)
	wants("another view of an epoch that was entered", other, stale, false)
	if err := b.views.enter(other); err == nil {
		t.Error("two views of an epoch were entered")
	}
	b.views.retire(first, []byte("why"))
	b.views.retire(first, nil) // no effect
	wants("when it is over", first, viewOver, false)
	if _, _, _, cause := b.views.find("b", hello(first)); !bytes.Equal(cause, []byte("why")) {
		t.Errorf("the cause is %q", cause)
	}
	strange := attemptAt(t.Context(), b, 9)
	strange.hello.Job = "another"
	wants("another job", strange, refused, false)
}

// A process may enter a view again after a failed attempt, and remembers only the last views.
func TestViewTableForgets(t *testing.T) {
	b := newTestBinder()
	a := attemptAt(t.Context(), b, 1)
	for range 2 {
		if err := b.views.enter(a); err != nil {
			t.Fatal(err)
		}
		if err := b.views.enter(a); err == nil {
			t.Error("a view was entered twice at a time")
		}
		b.views.forget(a)
	}
	for epoch := range uint64(3 * maxPast) {
		a := attemptAt(t.Context(), b, epoch+2)
		if err := b.views.enter(a); err != nil {
			t.Fatal(err)
		}
		b.views.entered(a)
		b.views.retire(a, nil)
	}
	if got := len(b.views.past); got != maxPast || len(b.views.attempts) != 0 {
		t.Errorf("%d views are remembered, and %d attempts", got, len(b.views.attempts))
	}
	b.life.end()
	if err := b.views.enter(attemptAt(t.Context(), b, 100)); err == nil {
		t.Error("a view was entered after the end")
	}
}

// A stream that waits for a view goes to the attempt that enters it. It stops waiting after parkTime.
func TestViewTableWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBinder()
		a := attemptAt(t.Context(), b, 1)
		claimed := make(chan *attempt)
		wait := func() {
			_, p, _, _ := b.views.find("b", a.hello)
			claimed <- b.views.awaitClaim(p)
		}
		go wait()
		if got := <-claimed; got != nil || len(b.views.parked) != 0 {
			t.Errorf("a stream for a view that nobody enters got %v", got)
		}
		go wait()
		synctest.Wait()
		if err := b.views.enter(a); err != nil {
			t.Fatal(err)
		}
		if got := <-claimed; got != a || len(b.views.parked) != 0 {
			t.Errorf("the stream got %v", got)
		}
	})
}
