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
			change func(k *keeper, o *offer)
			want   error
		}{
			"all are reached":       {func(*keeper, *offer) {}, nil},
			"cut off":               {func(_ *keeper, o *offer) { o.Unreached = []ID{"001"} }, errUnreachable},
			"cut off from the lost": {func(k *keeper, o *offer) { o.Unreached = []ID{"001"}; k.peers["001"].suspected = "silent" }, nil},
			"a new member":          {func(_ *keeper, o *offer) { o.Tried = []ID{"001"} }, ErrNotYet},
			"a new one, met before": {func(_ *keeper, o *offer) { o.Tried, o.Met = []ID{"001"}, []ID{"002"} }, nil},
			"a new one, beside":     {func(k *keeper, o *offer) { o.Tried = []ID{"001"}; k.view.Members[2].Host = "h" }, nil},
			"a new one, by a relay": {func(k *keeper, o *offer) { o.Tried, o.Relay, k.ep.Relay = []ID{"001"}, true, true }, nil},
			"a new one, no relay":   {func(_ *keeper, o *offer) { o.Tried, o.Relay = []ID{"001"}, true }, ErrNotYet},
			"the last is gone":      {func(_ *keeper, o *offer) { o.Tried = []ID{"001", "002", "gone"} }, nil},
			"an old list":           {func(_ *keeper, o *offer) { o.Tried = []ID{"gone"} }, ErrNotYet},
			"no quorum":             {func(k *keeper, o *offer) { o.Tried, k.lacking = nil, true }, nil},
			"another newcomer":      {func(k *keeper, _ *offer) { k.note(other(), Entry{}) }, ErrNotYet},
			"one that it has met":   {func(k *keeper, o *offer) { k.note(other(), Entry{}); o.Met = []ID{"other"} }, nil},
			"one that has met it": {func(k *keeper, _ *offer) {
				k.note(other(), Entry{})
				k.hear(offer{Member: other().Member, Met: []ID{"new"}})
			}, nil},
			"one cut off":             {func(k *keeper, o *offer) { k.note(other(), Entry{}); o.Unreached = []ID{"other"} }, errUnreachable},
			"one beside":              {func(k *keeper, o *offer) { k.note(other(), Entry{}); o.Member.Host = "elsewhere" }, nil},
			"one by a relay":          {func(k *keeper, o *offer) { o.Relay = true; x := other(); x.Relay = true; k.hear(x); k.note(x, Entry{}) }, nil},
			"one that is not let in":  {func(*keeper, *offer) {}, nil},
			"one that comes no more":  {func(k *keeper, _ *offer) { k.note(other(), Entry{}); <-time.After(approvalTerm) }, nil},
			"a member and a newcomer": {func(k *keeper, o *offer) { k.note(other(), Entry{}); o.Unreached = []ID{"001"} }, errUnreachable},
		} {
			k, o := testKeeper(t, 3, 0), all()
			k.hear(other())
			c.change(k, &o)
			err := k.unproven(o)
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
		k := callable(t)
		o := offer{Member: Member{ID: "new"}, Tried: []ID{"002"}, Admitted: true}
		if d := k.approve(o, Entry{}); d.err != nil || len(d.coming) != 0 || !k.isApproved("new") {
			t.Errorf("the first: %+v", d)
		}
		<-time.After(approvalTerm)
		if d := k.approve(offer{Member: other().Member, Tried: []ID{"002"}}, Entry{}); d.err != nil {
			t.Errorf("the second: %+v", d)
		}
		d := k.approve(o, Entry{})
		if !errors.Is(d.err, ErrNotYet) || len(d.coming) != 1 || d.coming[0].ID != "other" || k.isApproved("new") {
			t.Errorf("the first again: %+v", d)
		}
		o.Met = []ID{"other"}
		if d := k.approve(o, Entry{}); d.err != nil || len(d.coming) != 0 || !k.isApproved("new") {
			t.Errorf("once they have connected: %+v", d)
		}
	})
}

// callable returns a test keeper that calls functions.
func callable(t *testing.T) *keeper {
	k := testKeeper(t, 3, 0)
	k.functions = make(chan func())
	k.ctx, k.cancel = context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case f := <-k.functions:
				f()
			case <-k.ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		k.cancel()
		<-ended
	})
	return k
}

// A member that a newcomer cannot reach is told to connect with the newcomer. Lost members, and
// peers that are no members, are not told.
func TestCallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := testKeeper(t, 4, 0)
		k.peers["003"].suspected = "silent"
		at := []string{"/ip4/192.0.2.1/tcp/7"}
		k.callBack(offer{Member: Member{ID: "new", Addrs: at}, Unreached: []ID{"002", "003", "stranger", "000"}})
		b := []byte(<-k.out.network.(wall).sent)
		c, err := decodeCall(b[1:])
		if letterKind(b[0]) != letterCall || err != nil || c.ID != "new" || c.Info != `{"a":["/ip4/192.0.2.1/tcp/7"]}` {
			t.Errorf("%q, %v", b, err)
		}
		synctest.Wait()
		if n := len(k.out.queue); n > 0 {
			t.Errorf("%d more are told", n)
		}
	})
}

// A member makes one attempt at a time to connect with the same newcomer, and tries a bounded
// number of newcomers at a time.
func TestCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := callable(t)
		sent := k.ep.Network.(wall).sent
		for i := range 2 * maxCalls {
			for range 2 {
				k.do(func() { k.letter("001", calling{ID: ID(rune('a' + i))}.append(nil)) })
			}
		}
		k.do(func() { k.call(calling{ID: "001"}) }) // already a member: no attempt
		for range maxCalls {
			<-sent
		}
		synctest.Wait()
		select {
		case <-sent:
			t.Error("more than the bound are called")
		default:
		}
		k.do(func() { k.call(calling{ID: "a"}) }) // a second call for the same newcomer
		<-sent
	})
}
