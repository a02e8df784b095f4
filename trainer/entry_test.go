package trainer

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/loadbal"
	"pgregory.net/rapid"
)

func TestEntriesSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := entry{state: fingerprint{rapid.Int64().Draw(t, "committed"), rapid.Uint64().Draw(t, "digest")}, attempt: rapid.Int64().Draw(t, "attempt"),
			exponents: rapid.SliceOfN(rapid.Int8(), 0, 20).Draw(t, "exponents"), held: rapid.SliceOfN(rapid.Uint64(), 0, 3).Draw(t, "held"),
			speed: rapid.Int64().Draw(t, "speed"), most: rapid.Int().Draw(t, "most"),
			links: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) pace { return pace(rapid.Byte().Draw(t, "pace")) }), 0, 20).Draw(t, "links")}
		if got := entryOf(e.words(), len(e.exponents), len(e.links)); fmt.Sprint(got) != fmt.Sprint(e) {
			t.Fatalf("sent %+v, got %+v", e, got)
		}
	})
}

func microbatches(n int, ks ...int) loadbal.Set {
	s := loadbal.NewSet(n)
	for _, k := range ks {
		s.Add(k)
	}
	return s
}

// The highest attempt counts: what others hold of lower ones is computed again.
func TestTheHighestAttemptCounts(t *testing.T) {
	all := []entry{{attempt: 0, held: microbatches(6, 0, 1)}, {attempt: 1, held: microbatches(6, 0)}, {attempt: 1, held: microbatches(6, 2, 3)}}
	leader, shares, kept := settle(all, nil, 6)
	if leader != 1 || !reflect.DeepEqual(kept, []bool{false, true, true}) {
		t.Errorf("leader %d, kept %v", leader, kept)
	}
	if got := fmt.Sprint(shares[0].Ranges(), shares[1].Ranges(), shares[2].Ranges()); got != "[[1 2] [4 5]] [[0 1] [5 6]] [[2 4]]" {
		t.Errorf("shares %v", got)
	}
}

// A microbatch that two hold counts once: the higher rank throws away what it holds.
func TestAnOverlapIsThrownAway(t *testing.T) {
	all := []entry{{held: microbatches(4, 1)}, {held: microbatches(4, 1, 2)}}
	if _, shares, kept := settle(all, nil, 4); kept[1] || !kept[0] || shares[1].Has(1) || shares[0].Len()+shares[1].Len() != 4 {
		t.Errorf("kept %v, shares %v and %v", kept, shares[0].Ranges(), shares[1].Ranges())
	}
}

// After the last step nothing is open.
func TestNothingIsOpen(t *testing.T) {
	if leader, shares, kept := settle([]entry{{}, {}}, nil, 0); leader != 0 || shares[1].Len() != 0 || !kept[0] || !kept[1] {
		t.Errorf("leader %d, shares %v, kept %v", leader, shares, kept)
	}
}

// nobody is the transport of a group of one, which sends nothing.
type nobody struct{ transport.Transport }

func (nobody) Signals() <-chan transport.Signal { return nil }
func (nobody) Close() error                     { return nil }

// What a peer holds stays from one session to the next, but not under another identity:
// then others have computed it.
func TestContributionsBelongToAnIdentity(t *testing.T) {
	comm, err := collective.New(nobody{}, 0, 1, collective.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer comm.Close()
	r := alone(t, ramp{paramsOf(2, 3)}, nil)
	enter := func(id elastic.ID, epoch uint64) {
		t.Helper()
		s := &elastic.Session{View: elastic.View{Epoch: epoch, Members: []elastic.Member{{ID: id}}}, Comm: comm}
		if err := r.enter(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if r.shares[0].Len() != 4 {
			t.Errorf("the share of a single peer is %v", r.shares[0].Ranges())
		}
	}
	enter("me", 1)
	if err := r.open.add(r.model, r.plan.step(1), []int{2}, ignore); err != nil {
		t.Fatal(err)
	}
	enter("me", 2)
	if !r.open.held.Has(2) {
		t.Error("the contribution did not survive the change of the session")
	}
	enter("me again", 3)
	if r.open.held.Has(2) || r.open.samples != 0 {
		t.Error("the contribution survived the change of the identity")
	}
}
