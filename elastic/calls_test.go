package elastic

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// This tests which pairs of a newcomer keep it out, and whether for now or because the two cannot
// connect.
func TestUnproven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := func() offer { return offer{Member: Member{ID: "new", Host: "h"}, Tried: []ID{"002"}} }
		for name, c := range map[string]struct {
			change func(d *driver, o *offer)
			want   error
		}{
			"all are reached":       {func(*driver, *offer) {}, nil},
			"cut off":               {func(_ *driver, o *offer) { o.Unreached = []ID{"001"} }, errUnreachable},
			"cut off from the lost": {func(d *driver, o *offer) { o.Unreached = []ID{"001"}; d.peers["001"].suspected = "silent" }, nil},
			"a new member":          {func(_ *driver, o *offer) { o.Tried = []ID{"001"} }, ErrNotYet},
			"a new one, met before": {func(_ *driver, o *offer) { o.Tried, o.Met = []ID{"001"}, []ID{"002"} }, nil},
			"a new one, beside":     {func(d *driver, o *offer) { o.Tried = []ID{"001"}; d.view.Members[2].Host = "h" }, nil},
			"a new one, by a relay": {func(d *driver, o *offer) { o.Tried, o.Relay, d.ep.Relay = []ID{"001"}, true, true }, nil},
			"a new one, no relay":   {func(_ *driver, o *offer) { o.Tried, o.Relay = []ID{"001"}, true }, ErrNotYet},
			"the last is gone":      {func(_ *driver, o *offer) { o.Tried = []ID{"001", "002", "gone"} }, nil},
			"an old list":           {func(_ *driver, o *offer) { o.Tried = []ID{"gone"} }, ErrNotYet},
			"no quorum":             {func(d *driver, o *offer) { o.Tried, d.quorumLost = nil, true }, nil},
			"another newcomer":      {func(d *driver, _ *offer) { d.note(other(), Entry{}) }, ErrNotYet},
			"one that it has met":   {func(d *driver, o *offer) { d.note(other(), Entry{}); o.Met = []ID{"other"} }, nil},
			"one that has met it": {func(d *driver, _ *offer) {
				d.note(other(), Entry{})
				d.hear(offer{Member: other().Member, Met: []ID{"new"}})
			}, nil},
			"one cut off":             {func(d *driver, o *offer) { d.note(other(), Entry{}); o.Unreached = []ID{"other"} }, errUnreachable},
			"one beside":              {func(d *driver, o *offer) { d.note(other(), Entry{}); o.Member.Host = "elsewhere" }, nil},
			"one by a relay":          {func(d *driver, o *offer) { o.Relay = true; x := other(); x.Relay = true; d.hear(x); d.note(x, Entry{}) }, nil},
			"one that is not let in":  {func(*driver, *offer) {}, nil},
			"one that comes no more":  {func(d *driver, _ *offer) { d.note(other(), Entry{}); <-time.After(approvalTerm) }, nil},
			"a member and a newcomer": {func(d *driver, o *offer) { d.note(other(), Entry{}); o.Unreached = []ID{"001"} }, errUnreachable},
		} {
			d, o := testDriver(t, 3, 0), all()
			d.hear(other())
			c.change(d, &o)
			err := d.unproven(o)
			if (err == nil) != (c.want == nil) || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
	})
}

// other returns the offer of another newcomer.
func other() offer { return offer{Member: Member{ID: "other", Host: "elsewhere"}} }

// An approval is not renewed if another newcomer was admitted meanwhile and the two have not
// connected. The reply introduces the other newcomer.
func TestApprovalIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := callable(t)
		o := offer{Member: Member{ID: "new"}, Tried: []ID{"002"}, Admitted: true}
		if got := d.approve(o, Entry{}); got.err != nil || len(got.coming) != 0 || !d.isApproved("new") {
			t.Errorf("the first: %+v", got)
		}
		<-time.After(approvalTerm)
		if got := d.approve(offer{Member: other().Member, Tried: []ID{"002"}}, Entry{}); got.err != nil {
			t.Errorf("the second: %+v", got)
		}
		got := d.approve(o, Entry{})
		if !errors.Is(got.err, ErrNotYet) || len(got.coming) != 1 || got.coming[0].ID != "other" || d.isApproved("new") {
			t.Errorf("the first again: %+v", got)
		}
		o.Met = []ID{"other"}
		if got := d.approve(o, Entry{}); got.err != nil || len(got.coming) != 0 || !d.isApproved("new") {
			t.Errorf("once they have connected: %+v", got)
		}
	})
}

// callable returns a test driver that calls functions.
func callable(t *testing.T) *driver {
	d := testDriver(t, 3, 0)
	d.loop.functions = make(chan func())
	d.loop.ctx, d.loop.cancel = context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case f := <-d.loop.functions:
				f()
			case <-d.loop.ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		d.loop.cancel()
		<-ended
	})
	return d
}

// A member that a newcomer cannot reach is told to connect with the newcomer. Lost members, and
// peers that are no members, are not told.
func TestRequestReverseDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := testDriver(t, 4, 0)
		d.peers["003"].suspected = "silent"
		at := []string{"/ip4/192.0.2.1/tcp/7"}
		d.requestReverseDials(offer{Member: Member{ID: "new", Addrs: at}, Unreached: []ID{"002", "003", "stranger", "000"}})
		b := []byte(<-d.out.network.(wall).sent)
		c, err := decodeReverseDial(b[1:])
		if controlKind(b[0]) != controlReverseDial || err != nil || c.ID != "new" || c.Info != `{"a":["/ip4/192.0.2.1/tcp/7"]}` {
			t.Errorf("%q, %v", b, err)
		}
		synctest.Wait()
		if n := len(d.out.queue); n > 0 {
			t.Errorf("%d more are told", n)
		}
	})
}

// A member makes one attempt at a time to connect with the same newcomer, and tries a bounded
// number of newcomers at a time.
func TestReverseDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := callable(t)
		sent := d.ep.Network.(wall).sent
		for i := range 2 * maxReverseDials {
			for range 2 {
				d.loop.do(func() { d.receive("001", reverseDial{ID: ID(rune('a' + i))}.append(nil)) })
			}
		}
		d.loop.do(func() { d.dialBack(reverseDial{ID: "001"}) }) // already a member: no attempt
		for range maxReverseDials {
			<-sent
		}
		synctest.Wait()
		select {
		case <-sent:
			t.Error("more than the bound are called")
		default:
		}
		d.loop.do(func() { d.dialBack(reverseDial{ID: "a"}) }) // a second call for the same newcomer
		<-sent
	})
}
