package elastic

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// A newcomer considers the job ended when for desertedAfter all offers have found that no process
// listens. The time after the last offer does not count.
func TestDeserted(t *testing.T) {
	l := &offerRounds{joiner: &joiner{d: testDriver(t, 1, 0), group: &Group{cfg: Config{RejoinTimeout: time.Hour}}}, last: errors.New("the last")}
	now := time.Now()
	l.begun = now
	gone := answered{member: Member{ID: "a"}, err: ErrGone}
	after := func(d time.Duration) error { return l.hopeless(now.Add(d)) }
	if err := after(2 * desertedAfter); err != nil {
		t.Errorf("without any offer: %v", err)
	}
	l.deserted.sign(now)
	if err := after(2 * desertedAfter); err != nil {
		t.Errorf("after one offer: %v", err)
	}
	l.deserted.sign(now.Add(desertedAfter + 1))
	if err := after(2 * desertedAfter); !errors.Is(err, ErrNoView) {
		t.Errorf("after two offers: %v", err)
	}
	if err := l.take(answered{member: Member{ID: "b"}, err: errors.New("busy")}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.take(gone), after(2*desertedAfter)); err != nil {
		t.Errorf("after a sign of life: %v", err)
	}
	l.deserted.first = now.Add(-2 * desertedAfter)
	if err := l.take(answered{member: Member{ID: "c"}, err: fmt.Errorf("ask c: %w", ErrOutside)}); err != nil {
		t.Fatal(err)
	}
	if err := after(0); !errors.Is(err, ErrNoView) {
		t.Errorf("after the answer of a newcomer: %v", err)
	}
}

// A newcomer makes offers to its contacts until a member has replied, and again after a round
// without a reply. Contacts may be newcomers, too, so the first round has only a few contacts, and
// each further round more.
func TestContacts(t *testing.T) {
	listed := []Member{{ID: "1"}, {ID: "2"}, {ID: "3"}}
	j := &joiner{reach: newReach(Member{ID: "self"}, false), group: &Group{cfg: Config{Contacts: func() []Member { return listed }},
		identity: identity{former: []Member{{ID: "4"}, {ID: "5"}}}}}
	check := func(unheard int, want ...ID) {
		t.Helper()
		var got []ID
		for _, m := range j.contacts(unheard) {
			got = append(got, m.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d rounds without a reply, members %v: got %v, want %v", unheard, j.reach.members, got, want)
		}
	}
	check(0, "1", "2", "3", "4") // a member has replied that it cannot decide yet, or this is the first round
	check(1, "1", "2", "3", "4", "5")
	check(1000, "1", "2", "3", "4", "5")
	j.reach.members = []Member{{ID: "member"}}
	check(0, "member")
	check(1, "member", "1", "2", "3", "4", "5")
}
