package elastic

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// unprovenCase changes an admitter and the offer of a newcomer that has reached all members.
type unprovenCase struct {
	change func(a *admitter, o *offer)
	want   error
}

// A member that a newcomer has not reached keeps the newcomer out: with ErrNotYet if the newcomer
// has not tried yet, and with errUnreachable if the two cannot connect.
func TestUnproven(t *testing.T) {
	checkUnproven(t, map[string]unprovenCase{
		"all are reached":       {func(*admitter, *offer) {}, nil},
		"cut off":               {func(_ *admitter, o *offer) { o.Unreached = []ID{"001"} }, errUnreachable},
		"cut off from the lost": {func(a *admitter, o *offer) { o.Unreached = []ID{"001"}; a.members.peers["001"].suspected = "silent" }, nil},
		"a new member":          {func(_ *admitter, o *offer) { o.Met = []ID{"001"} }, ErrNotYet},
		"a new one, beside":     {func(a *admitter, o *offer) { o.Met = []ID{"001"}; a.members.view.Members[2].Host = "h" }, nil},
		"a new one, by a relay": {func(a *admitter, o *offer) { o.Met, o.Relay, a.relay = []ID{"001"}, true, true }, nil},
		"a new one, no relay":   {func(_ *admitter, o *offer) { o.Met, o.Relay = []ID{"001"}, true }, ErrNotYet},
		"a host by its first": {func(a *admitter, o *offer) {
			o.Met, a.members.view.Members[1].Host, a.members.view.Members[2].Host = []ID{"001"}, "g", "g"
		}, nil},
		"a host, but not this one": {func(a *admitter, o *offer) {
			o.Met, o.Unreached = []ID{"001"}, []ID{"002"}
			a.members.view.Members[1].Host, a.members.view.Members[2].Host = "g", "g"
		}, errUnreachable},
		"one more is gone": {func(_ *admitter, o *offer) { o.Met = append(o.Met, "gone") }, nil},
		"an old list":      {func(_ *admitter, o *offer) { o.Met = []ID{"gone"} }, ErrNotYet},
		"all are tried": {func(a *admitter, o *offer) {
			now := a.members.view.Hash()
			o.Met, o.Tried = nil, now[:]
		}, nil},
		"all of another view are tried": {func(_ *admitter, o *offer) { o.Met, o.Tried = nil, []byte("another view") }, ErrNotYet},
		"no quorum":                     {func(a *admitter, o *offer) { o.Met, a.members.quorumLost = nil, true }, nil},
	})
}

// An admitted newcomer that another newcomer has not reached keeps the other one out in the same
// way.
func TestUnprovenNewcomers(t *testing.T) {
	checkUnproven(t, map[string]unprovenCase{
		"another newcomer":    {func(a *admitter, _ *offer) { a.newcomers.note(other(), Entry{}) }, ErrNotYet},
		"one that it has met": {func(a *admitter, o *offer) { a.newcomers.note(other(), Entry{}); o.Met = append(o.Met, "other") }, nil},
		"one that has met it": {func(a *admitter, _ *offer) {
			a.newcomers.note(other(), Entry{})
			a.newcomers.hear(offer{Member: other().Member, Met: []ID{"new"}}, nil)
		}, nil},
		"the host of one": {func(a *admitter, o *offer) {
			a.newcomers.hear(offer{Member: Member{ID: "mate", Host: "elsewhere"}}, nil)
			a.newcomers.note(other(), Entry{})
			o.Met = append(o.Met, "mate")
		}, nil},
		"the host of one, but not this one": {func(a *admitter, o *offer) {
			a.newcomers.hear(offer{Member: Member{ID: "mate", Host: "elsewhere"}}, nil)
			a.newcomers.note(other(), Entry{})
			o.Met, o.Unreached = append(o.Met, "mate"), []ID{"other"}
		}, errUnreachable},
		"one whose host has met it": {func(a *admitter, _ *offer) {
			a.newcomers.hear(other(), map[string]bool{"name h": true})
			a.newcomers.note(other(), Entry{})
		}, nil},
		"one cut off": {func(a *admitter, o *offer) { a.newcomers.note(other(), Entry{}); o.Unreached = []ID{"other"} }, errUnreachable},
		"one beside":  {func(a *admitter, o *offer) { a.newcomers.note(other(), Entry{}); o.Member.Host = "elsewhere" }, nil},
		"one by a relay": {func(a *admitter, o *offer) {
			o.Relay = true
			x := other()
			x.Relay = true
			a.newcomers.hear(x, nil)
			a.newcomers.note(x, Entry{})
		}, nil},
		"one that is not let in":  {func(*admitter, *offer) {}, nil},
		"one that comes no more":  {func(a *admitter, _ *offer) { a.newcomers.note(other(), Entry{}); <-time.After(minLease) }, nil},
		"a member and a newcomer": {func(a *admitter, o *offer) { a.newcomers.note(other(), Entry{}); o.Unreached = []ID{"001"} }, errUnreachable},
	})
}

// checkUnproven runs the cases.
func checkUnproven(t *testing.T, cases map[string]unprovenCase) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		for name, c := range cases {
			a, o := testAdmitter(t, 3), offer{Member: Member{ID: "new", Host: "h"}, Met: []ID{"001", "002"}}
			a.newcomers.hear(other(), nil)
			c.change(a, &o)
			err := a.unproven(o)
			if (err == nil) != (c.want == nil) || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
	})
}

// A reply to a newcomer introduces other newcomers: one of each host with which the first newcomer
// has not connected. It prefers newcomers that the first newcomer has not tried in vain to reach.
func TestComing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := testAdmitter(t, 3)
		for _, m := range []Member{{ID: "a1", Host: "a"}, {ID: "a2", Host: "a"}, {ID: "b1", Host: "b"}, {ID: "b2", Host: "b"}, {ID: "c1", Host: "c"},
			{ID: "unknown1"}, {ID: "unknown2"}, {ID: "mate", Host: "h"}} {
			a.newcomers.hear(offer{Member: m}, nil)
		}
		o := offer{Member: Member{ID: "new", Host: "h"}, Met: []ID{"b2"}, Unreached: []ID{"a1", "c1"}}
		var got []ID
		for _, m := range a.newcomers.coming(o, a.hostsOf(o.Met)) {
			got = append(got, m.ID)
		}
		if want := []ID{"a2", "c1", "unknown1", "unknown2"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// other returns the offer of another newcomer.
func other() offer { return offer{Member: Member{ID: "other", Host: "elsewhere"}} }

// An approval is not renewed if another newcomer was admitted meanwhile and the two have not
// connected. The reply introduces the other newcomer.
func TestApprovalIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := calledAdmitter(t)
		o := offer{Member: Member{ID: "new"}, Met: []ID{"001", "002"}, Admitted: true}
		if got := a.approve(o, Entry{}); got.err != nil || len(got.coming) != 0 || !a.newcomers.isApproved("new") {
			t.Errorf("the first: %+v", got)
		}
		<-time.After(minLease)
		if got := a.approve(offer{Member: other().Member, Met: []ID{"001", "002"}}, Entry{}); got.err != nil {
			t.Errorf("the second: %+v", got)
		}
		got := a.approve(o, Entry{})
		if !errors.Is(got.err, ErrNotYet) || len(got.coming) != 1 || got.coming[0].ID != "other" || a.newcomers.isApproved("new") {
			t.Errorf("the first again: %+v", got)
		}
		o.Met = append(o.Met, "other")
		if got := a.approve(o, Entry{}); got.err != nil || len(got.coming) != 0 || !a.newcomers.isApproved("new") {
			t.Errorf("once they have connected: %+v", got)
		}
	})
}

// testAdmitter returns the admitter of a member of a view of n members. No goroutine runs the
// functions of its event loop.
func testAdmitter(t *testing.T, n int) *admitter {
	w := wall{sent: make(chan string)}
	l := newEventLoop()
	l.cancel()
	a := &admitter{newcomers: newNewcomers(), cfg: new(Config), members: testRoster(n, 0), out: newSendQueues(w), loop: &l, network: w,
		dialer: reverseDialer{running: make(map[ID]bool)}}
	t.Cleanup(a.out.stop)
	t.Cleanup(a.dialer.work.Wait)
	return a
}

// calledAdmitter returns a test admission with a goroutine that runs the functions of its event
// loop.
func calledAdmitter(t *testing.T) *admitter {
	a := testAdmitter(t, 3)
	a.loop.functions = make(chan func())
	a.loop.ctx, a.loop.cancel = context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case f := <-a.loop.functions:
				f()
			case <-a.loop.ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		a.loop.cancel()
		<-ended
	})
	return a
}

// A member that a newcomer cannot reach is asked to dial the newcomer. Lost members, and peers that
// are no members, are not asked.
func TestRequestReverseDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := testAdmitter(t, 4)
		a.members.peers["003"].suspected = "silent"
		at := []string{"/ip4/192.0.2.1/tcp/7"}
		a.requestReverseDials(offer{Member: Member{ID: "new", Addrs: at}, Unreached: []ID{"002", "003", "stranger", "000"}})
		b := []byte(<-a.out.network.(wall).sent)
		c, err := decodeReverseDial(b[1:])
		if controlKind(b[0]) != controlReverseDial || err != nil || c.ID != "new" || c.Info != `{"a":["/ip4/192.0.2.1/tcp/7"]}` {
			t.Errorf("%q, %v", b, err)
		}
		synctest.Wait()
		if n := len(a.out.queue); n > 0 {
			t.Errorf("%d more are told", n)
		}
	})
}

// A member makes one attempt at a time to connect with the same newcomer, and tries a bounded
// number of newcomers at a time.
func TestReverseDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := calledAdmitter(t)
		sent := a.network.(wall).sent
		for i := range 2 * maxReverseDials {
			for range 2 {
				a.loop.do(func() { a.dialBack(reverseDial{ID: ID(rune('a' + i))}) })
			}
		}
		a.loop.do(func() { a.dialBack(reverseDial{ID: "001"}) }) // already a member: no attempt
		for range maxReverseDials {
			<-sent
		}
		synctest.Wait()
		select {
		case <-sent:
			t.Error("more than the bound are called")
		default:
		}
		a.loop.do(func() { a.dialBack(reverseDial{ID: "a"}) }) // a second attempt with the same newcomer, after the first has ended
		<-sent
	})
}
