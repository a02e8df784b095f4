package inpeer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/transport/p2p"
	"github.com/elrun/elrun/transport/ticket"
)

// fakeNet is a network on which some members accept proofs.
type fakeNet struct {
	accept map[elastic.ID]error // nil: accepts; missing: unreachable
	deaf   map[string]error     // addresses without an answer, and the error
	pause  time.Duration        // duration of a proof

	contacts []elastic.Member // of all members
	mute     bool             // no member names its contacts
	lost     map[string]bool  // addresses of found members at which nobody listens

	mu         sync.Mutex
	proven     map[elastic.ID]int
	introduced map[elastic.ID]bool
	sent       []elastic.ID
	connected  uint64
}

func newFakeNet(accept map[elastic.ID]error) *fakeNet {
	return &fakeNet{accept: accept, proven: make(map[elastic.ID]int), introduced: make(map[elastic.ID]bool)}
}

func (f *fakeNet) Prove(ctx context.Context, m elastic.Member, _ ticket.Credential) error {
	<-time.After(f.pause)
	f.mu.Lock()
	err, there := f.accept[m.ID]
	if len(m.Addrs) > 0 && f.lost[m.Addrs[0]] {
		there = false
	}
	f.mu.Unlock()
	if !there {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.proven[m.ID]++
	f.introduced[m.ID] = err == nil
	return err
}

// Identify returns the member with an ID at that address, or the error in deaf.
func (f *fakeNet) Identify(ctx context.Context, addr string) (elastic.Member, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err, is := f.deaf[addr]; is {
		return elastic.Member{}, err
	}
	return elastic.Member{ID: elastic.ID(addr)}, nil
}

func (f *fakeNet) Learn([]elastic.Member) {}

func (f *fakeNet) Forget(id elastic.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.introduced[id] = false
}

// knows reports whether a member was introduced and not dropped by Forget.
func (f *fakeNet) knows(id elastic.ID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.introduced[id]
}

func (f *fakeNet) Discover(ctx context.Context, found func(elastic.Member)) error {
	found(elastic.Member{ID: "found"})
	<-ctx.Done()
	return context.Cause(ctx)
}

func (f *fakeNet) MapPorts(ctx context.Context, told func(error)) {
	told(nil)
	<-ctx.Done()
}

// Contacts returns the same members for every member.
func (f *fakeNet) Contacts(ctx context.Context, _ elastic.ID) ([]elastic.Member, error) {
	if f.mute {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return f.contacts, nil
}

func (f *fakeNet) Introduce(members []elastic.Member) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range members {
		f.introduced[m.ID] = true
	}
	return nil
}

func (f *fakeNet) Send(_ context.Context, to elastic.ID, _ []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.introduced[to] {
		return errors.New("not introduced")
	}
	f.sent = append(f.sent, to)
	return nil
}

func (f *fakeNet) Events() <-chan elastic.PeerEvent { return nil }

func (f *fakeNet) Redial(elastic.ID) {}

func (f *fakeNet) Connect(_ context.Context, v elastic.View, _ int) (transport.Transport, error) {
	f.connected = v.Epoch
	return nil, nil
}

func (f *fakeNet) Request(ctx context.Context, to elastic.ID, b []byte) (io.ReadCloser, error) {
	return nil, f.Send(ctx, to, b)
}

func (f *fakeNet) Serve(func(context.Context, elastic.ID, []byte, io.Writer) error) {}

// identity returns an identity on f, which is closed at the end of the test.
func (f *fakeNet) identity(entered func(elastic.View)) *identity {
	return newIdentity(elastic.Endpoint{Self: elastic.Member{ID: "self"}, Network: f,
		Close: func() error { return nil }}, f, entered)
}

func membersOf(ids ...elastic.ID) []elastic.Member {
	var out []elastic.Member
	for _, id := range ids {
		out = append(out, elastic.Member{ID: id})
	}
	return out
}

// A newcomer's messages wait until it has proved its right to join.
func TestIdentityProvesBeforeItSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(map[elastic.ID]error{"a": nil, "b": nil, "bad": ticket.ErrUnknown})
		f.pause = time.Second
		i := f.identity(nil)
		for range 2 { // the second call changes nothing
			if err := i.Introduce(membersOf("a", "b", "bad", "away", "self")); err != nil {
				t.Fatal(err)
			}
		}
		if err := i.Send(t.Context(), "bad", nil); !errors.Is(err, ticket.ErrUnknown) {
			t.Errorf("to a member that refuses the proof meanwhile: %v", err)
		}
		if err := i.Send(t.Context(), "a", nil); err != nil {
			t.Error(err)
		}
		if _, err := i.Request(t.Context(), "b", nil); err != nil {
			t.Error(err)
		}
		if err := i.Send(t.Context(), "bad", nil); err == nil {
			t.Error("sent to one that refused the proof")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := i.Send(ctx, "away", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("to one that cannot be reached: %v", err)
		}
		// A failed proof is tried again.
		f.mu.Lock()
		f.accept["bad"] = nil
		f.mu.Unlock()
		if err := i.Introduce(membersOf("bad")); err != nil {
			t.Fatal(err)
		}
		if err := i.Send(t.Context(), "bad", nil); err != nil || f.proven["a"] != 1 || f.proven["bad"] != 2 {
			t.Errorf("%v, proofs %v", err, f.proven)
		}
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A newcomer is introduced to another newcomer without a proof, because newcomers cannot check
// proofs. Once the other newcomer is a member, it gets a proof.
func TestIdentityVouches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(map[elastic.ID]error{"other": nil})
		i := f.identity(nil)
		if err := i.endpoint().Vouch(membersOf("other")); err != nil {
			t.Fatal(err)
		}
		if _, err := i.Request(t.Context(), "other", nil); err != nil || len(f.proven) != 0 {
			t.Errorf("%v, proofs %v", err, f.proven)
		}
		if err := errors.Join(i.Introduce(membersOf("other")), i.Send(t.Context(), "other", nil)); err != nil || f.proven["other"] != 1 {
			t.Errorf("%v, proofs %v", err, f.proven)
		}
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A request to a newcomer, which waits for its first view before it answers, fails at once from its first answer
// on, until it takes the proof, until a member vouches for it, or until this identity is in a view.
func TestRequestToNewcomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(map[elastic.ID]error{"a": elastic.ErrOutside, "b": elastic.ErrOutside, "c": elastic.ErrOutside})
		f.pause = time.Minute
		i := f.identity(nil)
		within := func(want time.Duration, to elastic.ID, wanted error) {
			t.Helper()
			begun := time.Now()
			if _, err := i.Request(t.Context(), to, nil); !errors.Is(err, wanted) || time.Since(begun) != want {
				t.Errorf("to %s: %v after %v", to, err, time.Since(begun))
			}
		}
		introduce := func() { _ = i.Introduce(membersOf("a", "b", "c")) }
		introduce()
		within(time.Minute, "a", elastic.ErrOutside)
		synctest.Wait()
		introduce()
		within(0, "a", elastic.ErrOutside)
		f.mu.Lock()
		f.accept["a"] = nil
		f.mu.Unlock()
		<-time.After(time.Minute)
		synctest.Wait()
		within(0, "a", nil)
		within(0, "b", elastic.ErrOutside)
		_ = i.endpoint().Vouch(membersOf("b"))
		within(0, "b", nil)
		within(0, "c", elastic.ErrOutside)
		_ = i.joinFirstView(membersOf("c"))
		within(0, "c", nil)
		_ = i.Close()
	})
}

// An identity in a view needs no proof.
func TestIdentityInView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(nil)
		var entered elastic.View
		i := f.identity(func(v elastic.View) { entered = v })
		if _, err := i.Connect(t.Context(), elastic.View{Epoch: 7, Members: membersOf("a", "self")}, 1); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(i.Introduce(membersOf("b")), i.Send(t.Context(), "a", nil), i.Send(t.Context(), "b", nil)); err != nil {
			t.Error(err)
		}
		if entered.Epoch != 7 || f.connected != 7 || len(f.proven) != 0 {
			t.Errorf("entered %v, connected %d, proofs %v", entered, f.connected, f.proven)
		}
		_ = i.Close()
	})
}

func TestIntroduceBy(t *testing.T) {
	gone := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	for name, c := range map[string]struct {
		accept map[elastic.ID]error
		deaf   map[string]error
		addrs  []string
		found  []elastic.ID
		want   string // part of the error, "" for none
		within time.Duration
	}{
		"one of several":      {map[elastic.ID]error{"b": nil}, nil, []string{"a", "b"}, nil, "", 0},
		"one is gone":         {map[elastic.ID]error{"b": nil}, map[string]error{"a": gone}, []string{"a", "b"}, nil, "", 0},
		"only one found":      {map[elastic.ID]error{"c": nil}, nil, []string{"a"}, []elastic.ID{"self", "c"}, "", 0},
		"another's address":   {map[elastic.ID]error{"a": ticket.ErrOtherJob, "b": nil}, nil, []string{"a", "b"}, nil, "", 0},
		"unknown":             {map[elastic.ID]error{"a": ticket.ErrUnknown}, nil, []string{"a", "b"}, nil, "no member knows this ticket", 10 * time.Second},
		"ended":               {map[elastic.ID]error{"a": ticket.ErrEnded}, map[string]error{"b": gone}, []string{"a", "b"}, nil, "has ended", 10 * time.Second},
		"kicked":              {map[elastic.ID]error{"a": ticket.ErrKicked}, nil, []string{"a"}, nil, "kicked", 10 * time.Second},
		"expired":             {map[elastic.ID]error{"a": fmt.Errorf("p2p: %w", ticket.ErrExpired)}, nil, []string{"a"}, nil, "expired", 1},
		"used up":             {map[elastic.ID]error{"c": ticket.ErrUsedUp}, nil, []string{"a"}, []elastic.ID{"c"}, "used up", 1},
		"a stranger refuses":  {map[elastic.ID]error{"c": ticket.ErrUnknown}, nil, []string{"a"}, []elastic.ID{"c"}, "no member has let this peer in for 1m0s", 0},
		"all are gone":        {nil, map[string]error{"/ip4/192.0.2.1/tcp/7": gone}, []string{"/ip4/192.0.2.1/tcp/7"}, nil, "192.0.2.1:7: connection refused: nobody listens there", 15 * time.Second},
		"nobody answers":      {nil, map[string]error{"a": context.DeadlineExceeded}, []string{"a"}, nil, "a: no answer: is the host up", 0},
		"two hang":            {nil, nil, []string{"a", "b"}, nil, "no member has let this peer in for 1m0s (2 addresses tried)", 0},
		"an impostor answers": {map[elastic.ID]error{"a": p2p.ErrImpostor}, nil, []string{"a"}, nil, "a peer of another job answers there", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeNet(c.accept)
				f.deaf = c.deaf
				i := f.identity(nil)
				found := func() []elastic.Member { return membersOf(c.found...) }
				begun := time.Now()
				in, err := i.findAdmission(t.Context(), ticket.Credential{Signers: []string{"x"}}, c.addrs, found, time.Minute)
				switch {
				case c.want == "" && (err != nil || c.accept[in.by.ID] != nil || len(i.credential.Signers) != 1):
					t.Errorf("got %v, %v", in, err)
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
					t.Errorf("got %v, want %q", err, c.want)
				case c.within > 0 && time.Since(begun) > c.within:
					t.Errorf("after %v", time.Since(begun))
				case err != nil && len(err.Error()) > 200:
					t.Errorf("%d bytes: %v", len(err.Error()), err)
				}
				_ = i.Close()
			})
		})
	}
}

// A newcomer does not wait for ever for the member that has let it in, which may be gone by then.
func TestAdmittedByTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(map[elastic.ID]error{"a": nil})
		f.mute = true
		i := f.identity(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		in, err := i.findAdmission(ctx, ticket.Credential{Signers: []string{"x"}}, []string{"a", "b"}, func() []elastic.Member { return nil }, time.Hour)
		if err != nil || in.by.ID != "a" {
			t.Errorf("got %+v, %v", in, err)
		}
		if ctx.Err() != nil {
			t.Error("it has waited until its context ended")
		}
		_ = i.Close()
	})
}

// A kicked member gets a message before its connections are closed.
func TestBar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(nil)
		f.introduced["a"] = true
		i := f.identity(nil)
		i.disconnect([]elastic.ID{"a"})
		i.disconnect([]elastic.ID{"a"})
		synctest.Wait()
		if !f.knows("a") {
			t.Error("it was not told")
		}
		<-time.After(2 * forgetAfter)
		if f.knows("a") {
			t.Error("it was not forgotten")
		}
		_ = i.Close()
	})
}

func TestIdentityDiscovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newFakeNet(nil).identity(nil)
		p := &peer{id: i, a: &Link{}, order: wire.StartOrder{LAN: true}}
		p.publish()
		p.publish()
		synctest.Wait()
		if got := p.contacts(); len(got) != 1 || got[0].ID != "found" {
			t.Errorf("contacts %v", got)
		}
		for k := range 2 * maxFound {
			p.found.add(foundAt(string(rune(k)), k))
		}
		if n := len(p.found.members()); n != maxFound {
			t.Errorf("%d are kept, want %d", n, maxFound)
		}
		_ = i.Close() // ends the search
		p.id.discover(p.found.add, p.undiscovered)
	})
}
