package inpeer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/wire"
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
