package run

import (
	"bytes"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/job"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/transport/ticket"
)

func peerID(i int) elastic.ID { return elastic.ID("12D3KooW-peer-" + string(rune('a'+i))) }

// testOrder returns the order of a launcher that starts a job.
func testOrder() wire.StartOrder {
	return wire.StartOrder{Launcher: "launcher", Job: "job", Secret: bytes.Repeat([]byte{7}, wire.SecretSize)}
}

// rosterOf returns a roster whose n peers have said hello.
func rosterOf(n int, order wire.StartOrder) *roster {
	r := newRoster(order)
	for i := range n {
		r.expect(i)
		r.hello(i, elastic.Member{ID: peerID(i), Index: 77})
	}
	return r
}

// beginAll makes a first view of the n peers of r.
func beginAll(r *roster, n int) {
	var ids []job.ID
	for i := range n {
		ids = append(ids, shorten(peerID(i)))
	}
	r.begin(ids, 1)
}

// The order for a first view has its members by rank, and gives no right that they do not need.
func TestRosterFirstView(t *testing.T) {
	r := rosterOf(3, testOrder())
	s := r.first([]job.ID{shorten(peerID(2)), shorten(peerID(0))}).Start
	if s == nil || len(s.Peers) != 2 || !s.Sole || s.Root == "" || len(s.Pass) > 0 {
		t.Fatalf("got %+v", s)
	}
	if p := s.Peers[0]; p.ID != peerID(2) || p.Index != 2 || p.Launcher != "launcher" {
		t.Errorf("rank 0 is %+v", p)
	}
	if r.index(peerID(1).Short()) != 1 || r.index("nobody") != -1 {
		t.Error("the index of an ID is wrong")
	}
	line, err := wire.Encode(wire.Message{Start: &r.order})
	if err != nil || bytes.Contains(line, []byte("secret")) {
		t.Errorf("peers are told %s, %v", line, err)
	}
}

// A hello with the ID of the last one comes from the same program, and one with another ID from a further
// program, whose group is another job.
func TestRosterCountsPrograms(t *testing.T) {
	r := rosterOf(1, testOrder())
	for _, c := range []struct {
		id   elastic.ID
		want int
	}{{peerID(0), 1}, {"second", 2}, {"second", 2}, {"third", 3}} {
		if got := r.hello(0, elastic.Member{ID: c.id}); got.Program != c.want || got.ID != shorten(c.id) {
			t.Errorf("%s: got %+v, want program %d", c.id, got, c.want)
		}
	}
	// The late report about a program says nothing about a further program of the same command.
	for id, want := range map[elastic.ID]bool{"second": false, "third": true} {
		if got := r.dying(0, id); got != want {
			t.Errorf("the end of %s counts as that of the present program: %v", id, got)
		}
	}
	if r.dying(7, "third") {
		t.Error("a peer that never was is dying")
	}
	r.begin([]job.ID{"third"}, 3)
	if s := r.first([]job.ID{"third"}).Start; s.Job != "job++" {
		t.Errorf("the third program runs as job %q", s.Job)
	}
	if r.index(peerID(0).Short()) != 0 {
		t.Error("a dead peer has lost its name")
	}
}

// A late or restarted peer gets contacts that may be alive, and a pass.
func TestRosterLatePeer(t *testing.T) {
	r := rosterOf(3, testOrder())
	beginAll(r, 3)
	r.end(0, true)
	far := elastic.Member{ID: "far", Host: "elsewhere", Launcher: "another"}
	r.learn(wire.Known{Epoch: 5, Members: []elastic.Member{{ID: peerID(0), Launcher: "launcher"}, {ID: peerID(1), Launcher: "launcher"}}})
	for round, i := range []int{0, 7} {
		sole := round == 0 // later rounds know a member of another launcher
		r.expect(i)
		self := elastic.Member{ID: elastic.ID("late-" + string(rune('0'+i)))}
		r.hello(i, self)
		s := r.join(i).Start
		if s == nil || len(s.Peers) != 0 || s.Sole != sole || !ticket.ClaimOf(s.Root, s.Pass).Proves(s.Root, string(self.ID)) {
			t.Fatalf("peer %d: got %+v", i, s)
		}
		for _, c := range s.Contacts {
			if c.ID == peerID(0) || c.ID == self.ID {
				t.Errorf("peer %d: %s is no contact", i, c.ID)
			}
		}
		if len(s.Contacts) < 2 {
			t.Errorf("peer %d: contacts %v", i, s.Contacts)
		}
		r.learn(wire.Known{Epoch: 6, Members: []elastic.Member{far, {ID: peerID(1), Launcher: "launcher"}}})
	}
	if !r.hasForeignMembers() || r.host(far.ID.Short()) != "elsewhere" {
		t.Error("a member of another launcher is not seen as such")
	}
	if r.learn(wire.Known{Epoch: 2}); len(r.latest.Members) != 2 {
		t.Error("old news replaced newer")
	}
}

// A launcher that joins by a ticket passes the ticket on to its peers, and signs no passes.
func TestRosterByTicket(t *testing.T) {
	r := rosterOf(2, wire.StartOrder{Launcher: "second", Ticket: "ticket"})
	if s := r.join(1).Start; s.Ticket != "ticket" || s.Root != "" || s.Pass != nil || s.Sole {
		t.Errorf("the first one is told %+v", s)
	}
	r.learn(wire.Known{Epoch: 3, Members: []elastic.Member{{ID: peerID(1), Launcher: "second"}}})
	if s := r.join(0).Start; s.Ticket != "ticket" || s.Pass != nil || len(s.Contacts) != 1 || s.Sole {
		t.Errorf("the second one is told %+v", s)
	}
	r.renew(0, elastic.Member{ID: "new"})
	if m, ok := r.pass("new"); ok {
		t.Errorf("it signs %+v", m)
	}
}

// The launcher that began the job signs new identities of its peers.
func TestRosterSignsNewID(t *testing.T) {
	r := rosterOf(2, testOrder())
	if got := r.renew(1, elastic.Member{ID: "new"}); got != (job.Renew{Seat: 1, ID: "new"}) {
		t.Errorf("got %+v", got)
	}
	m, ok := r.pass("new")
	if root := r.order.Root; !ok || m.Pass.ID != "new" || !ticket.ClaimOf(root, m.Pass.Signature).Proves(root, "new") {
		t.Errorf("got %+v", m.Pass)
	}
}

// Of several launchers the one whose peer has rank 0 reports the progress.
func TestLeads(t *testing.T) {
	former, joiner := rosterOf(1, testOrder()), newRoster(wire.StartOrder{Launcher: "other"})
	ours, theirs := elastic.Member{ID: peerID(0), Launcher: "launcher"}, elastic.Member{ID: peerID(1), Launcher: "other"}
	if !former.isLeading() || joiner.isLeading() {
		t.Error("before a view of both")
	}
	for i, members := range [][]elastic.Member{{ours, theirs}, {theirs, ours}, {theirs}} {
		for _, r := range []*roster{former, joiner} {
			r.learn(wire.Known{Epoch: uint64(i) + 2, Members: members})
		}
		if former.isLeading() != (i == 0) || joiner.isLeading() != (i > 0) {
			t.Errorf("view %d", i)
		}
	}
	for epoch, first := range []bool{true, true, true, false, false, false} {
		if former.led(uint64(epoch)) != first || joiner.led(uint64(epoch)) == first {
			t.Errorf("epoch %d", epoch)
		}
	}
}
