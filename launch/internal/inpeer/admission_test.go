package inpeer

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/transport/mem"
	"github.com/elrun/elrun/transport/p2p"
	"github.com/elrun/elrun/transport/ticket"
)

// In a process without a view, answer blocks until there is a view or the caller's context ends.
func TestAnswerWaitsForView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ad := newAdmission("job")
		answered := func(limit time.Duration) time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			begun := time.Now()
			if a := ad.answer(ctx, "newcomer", ticket.Request{Name: ticket.NameOf("job")}); a.Decision != ticket.NotYet {
				t.Errorf("the decision is %v", a.Decision)
			}
			return time.Since(begun)
		}
		if took := answered(time.Second); took != time.Second {
			t.Errorf("without a view the answer takes %v", took)
		}
		ad.decide() // there is no group
		if took := answered(time.Second); took != time.Second {
			t.Errorf("without a group the answer takes %v", took)
		}
		time.AfterFunc(time.Second, func() { close(ad.decidable) })
		if took := answered(time.Minute); took != time.Second {
			t.Errorf("the answer comes %v after the begin, and the view after 1s", took)
		}
	})
}

// A newcomer that others ask for admission says that it is one, and a peer that its launcher has told to wait does
// not: it may begin the job.
func TestAnswerOfNewcomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := mem.NewNetwork()
		self := elastic.Member{ID: "self"}
		g, err := elastic.Join(t.Context(), elastic.Config{Endpoint: network.Endpoint(self), Contacts: func() []elastic.Member { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		ad := newAdmission("job")
		ad.setGroup(g)
		check := func(want ticket.Decision) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if a := ad.answer(ctx, "other", ticket.Request{Name: ticket.NameOf("job")}); a.Decision != want {
				t.Errorf("the decision is %v, want %v", a.Decision, want)
			}
		}
		check(ticket.Outside)
		if !g.Admin().Again() {
			t.Error("a newcomer does not wait")
		}
		check(ticket.NotYet)
		g.Admin().Resume()
		synctest.Wait()
		check(ticket.Outside)
		if err := errors.Join(g.Close(), network.Close()); err != nil {
			t.Error(err)
		}
	})
}

// A process that is no member does not confirm a death, as it cannot pass it on.
func TestBuryWithoutGroup(t *testing.T) {
	if text, err := newAdmission("job").bury([]elastic.ID{"a"}); err == nil {
		t.Errorf("got %q", text)
	}
	if newAdmission("job").onObituaries([]p2p.Obituary{{ID: "a"}}) {
		t.Error("a process without a group confirms a death")
	}
	if _, err := wire.DecodeRequest([]byte(`{"request":"dead","dead":[` + "\"a\"" + `]}`)); err != nil {
		t.Error(err)
	}
}

// A death that is told before the member knows the view of the dead counts in that view, once, if the
// launcher of the dead has signed it.
func TestMournLater(t *testing.T) {
	_, ours, _ := ed25519.GenerateKey(nil)
	_, theirs, _ := ed25519.GenerateKey(nil)
	member := func(id elastic.ID) elastic.Member {
		return elastic.Member{ID: id, Launcher: wire.LauncherName(ours)}
	}
	older := elastic.View{Epoch: 1, Members: []elastic.Member{member("a"), member("b")}}
	view := elastic.View{Epoch: 2, Members: append(older.Members, member("c"), member("d"))}
	ad := newAdmission("job")
	ad.remember(wire.SignDeaths(ours, []elastic.ID{"b", "c", "x"}))
	ad.remember(wire.SignDeaths(theirs, []elastic.ID{"d"}))
	ad.remember(wire.SignDeaths(ours, []elastic.ID{"c"})) // told again
	for _, c := range []struct {
		view  elastic.View
		dead  []elastic.ID
		valid bool
	}{{older, []elastic.ID{"b"}, true}, {view, []elastic.ID{"c"}, false}, {view, nil, true}} {
		if dead, valid := ad.mourn(c.view); !slices.Equal(dead, c.dead) || valid != c.valid {
			t.Errorf("%v: dead %v, valid %v, want %v, %v", c.view, dead, valid, c.dead, c.valid)
		}
	}
	for i := range 2 * maxEarly {
		ad.remember(wire.SignDeaths(theirs, []elastic.ID{elastic.ID(fmt.Sprint(i))}))
	}
	if len(ad.early) != maxEarly {
		t.Errorf("%d obituaries are kept, want %d", len(ad.early), maxEarly)
	}
}
