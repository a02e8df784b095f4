package inpeer

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/ticket"
)

// The member that has admitted a peer may die right afterwards. So the peer contacts the members
// that the admitting member knew, and the members that listen at the ticket's other addresses.
func TestContactsAfterIntroduction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(map[elastic.ID]error{"a": nil})
		f.deaf = map[string]error{"b": errors.New("no answer yet"), "never": errors.New("no answer")}
		f.contacts = membersOf("c", "d")
		seed := [ticket.SeedSize]byte{1}
		k, err := ticket.New("job", ticket.Identity{}, seed, time.Now().Add(time.Hour), []string{"/ip4/192.0.2.1/tcp/1"})
		if err != nil {
			t.Fatal(err)
		}
		k.Addrs = []string{"a", "b", "never"}
		i := f.identity(nil)
		p := &peer{id: i, a: &Link{}}
		p.order.Contacts = membersOf("mate")
		if err := p.showTicket(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		if n := len(p.order.Contacts); n < 4 || p.order.Contacts[0].ID != "a" || p.order.Contacts[n-1].ID != "mate" {
			t.Errorf("contacts %v: want the member that let it in first, and the peers of this launcher last", p.order.Contacts)
		}
		asked := func() (ids []elastic.ID) {
			for _, m := range p.contacts() {
				ids = append(ids, m.ID)
			}
			return ids
		}
		if got := asked(); !slices.Equal(got, []elastic.ID{"a"}) {
			t.Errorf("first %v", got)
		}
		for _, want := range []elastic.ID{"a", "c", "d"} {
			if !slices.Contains(asked(), want) {
				t.Errorf("%s is not asked: %v", want, asked())
			}
		}
		f.mu.Lock()
		delete(f.deaf, "b")
		f.mu.Unlock()
		<-time.After(2 * redialPeriod)
		if !slices.Contains(asked(), "b") {
			t.Errorf("b is not asked: %v", asked())
		}
		<-time.After(2 * vacantAfter)
		_ = i.Close() // would hang if an attempt were still running
	})
}

// Newcomers begin with different addresses of a ticket, and each newcomer tries all addresses.
func TestTurns(t *testing.T) {
	first := make(map[int]bool)
	for i := range 100 {
		order := turns(5, fmt.Sprint("newcomer ", i))
		first[order[0]] = true
		slices.Sort(order)
		if !slices.Equal(order, []int{0, 1, 2, 3, 4}) {
			t.Fatalf("newcomer %d: %v", i, order)
		}
	}
	if len(first) != 5 {
		t.Errorf("the newcomers begin with %v", first)
	}
	if got := turns(0, "x"); len(got) != 0 {
		t.Errorf("of no addresses: %v", got)
	}
}

// A found member may have false addresses: the ticket's addresses are tried as well.
func TestFalseFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(map[elastic.ID]error{"a": nil})
		f.lost = map[string]bool{"false": true}
		i := f.identity(nil)
		found := func() []elastic.Member { return []elastic.Member{{ID: "a", Addrs: []string{"false"}}} }
		f.pause = time.Second // the found member is tried first
		in, err := i.findAdmission(t.Context(), ticket.Credential{Signers: []string{"x"}}, []string{"a"}, found, time.Minute)
		if err != nil || in.by.ID != "a" {
			t.Errorf("%v, %v", in, err)
		}
		_ = i.Close()
	})
}
