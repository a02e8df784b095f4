package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/wire"
)

// fakeDiscovery remembers the last announcement under each key.
type fakeDiscovery struct {
	mu    sync.Mutex
	under map[string][]elastic.Member
	calls int
	err   error // the result of all calls
}

func (f *fakeDiscovery) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeDiscovery) Announce(_ context.Context, keys []string, members []elastic.Member) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.err != nil {
		return f.err
	}
	if f.under == nil {
		f.under = make(map[string][]elastic.Member)
	}
	for _, k := range keys {
		f.under[k] = members
	}
	return nil
}

func (f *fakeDiscovery) Find(_ context.Context, key string) ([]elastic.Member, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	return f.under[key], f.err
}

// announcedIDs returns the members announced under a key, and the number of calls.
func (f *fakeDiscovery) announcedIDs(key string) (ids []elastic.ID, calls int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.under[key] {
		ids = append(ids, m.ID)
	}
	return ids, f.calls
}

// openJob returns an open job with a ticket and members on hosts.
func openJob(hosts ...string) wire.Known {
	k := wire.Known{Epoch: 1, Open: true, Tickets: []wire.OpenTicket{{Key: "key"}}}
	for i, h := range hosts {
		k.Members = append(k.Members, elastic.Member{ID: elastic.ID(fmt.Sprint(i)), Host: h, Addrs: []string{"/ip4/127.0.0.1/tcp/1", fmt.Sprintf("/ip4/192.0.2.%d/tcp/1", i)}})
	}
	return k
}

// An open job is announced under the keys of its valid tickets, with members of many hosts and
// without loopback addresses.
func TestAnnouncementOf(t *testing.T) {
	now := time.Unix(100, 0)
	rapid.Check(t, func(t *rapid.T) {
		var hosts []string
		for range rapid.IntRange(0, 20).Draw(t, "members") {
			hosts = append(hosts, fmt.Sprint("host", rapid.IntRange(0, 9).Draw(t, "host")))
		}
		k := openJob(hosts...)
		k.Open = rapid.Bool().Draw(t, "open")
		k.Tickets = []wire.OpenTicket{{Key: "for good", Expiry: 0}, {Key: "holds", Expiry: 101}, {Key: "expired", Expiry: 100}}
		a := announcementOf(k, now)
		if !k.Open {
			if len(a.keys)+len(a.members) > 0 {
				t.Fatalf("a closed job: %v", a)
			}
			return
		}
		if !slices.Equal(a.keys, []string{"for good", "holds"}) {
			t.Fatalf("keys %v", a.keys)
		}
		distinct := map[string]bool{}
		for _, h := range hosts {
			distinct[h] = true
		}
		there, ids := map[string]bool{}, map[elastic.ID]bool{}
		for _, m := range a.members {
			i := slices.IndexFunc(k.Members, func(o elastic.Member) bool { return o.ID == m.ID })
			there[k.Members[i].Host], ids[m.ID] = true, true
			if strings.Contains(strings.Join(m.Addrs, " "), "127.0.0.1") || len(m.Addrs) == 0 {
				t.Fatalf("addresses %v", m.Addrs)
			}
		}
		if len(ids) != len(a.members) || len(ids) != min(len(hosts), maxAnnounced) || len(there) != min(len(distinct), maxAnnounced) {
			t.Fatalf("%d of %d members of %d of %d hosts", len(ids), len(hosts), len(there), len(distinct))
		}
	})
}

// The job is not announced under the keys of tickets that admit nobody any more, nor under the
// launcher's key.
func TestTicketsOf(t *testing.T) {
	got := wire.TicketsOf(elastic.View{Grants: []elastic.Grant{{Key: "root"}, {Key: "good", Issuer: "a", Expiry: 7}, {Key: "revoked", Issuer: "a", Revoked: true},
		{Key: "used up", Issuer: "a", Uses: 2, Used: 2}, {Key: "left", Issuer: "a", Uses: 2, Used: 1}}})
	if !slices.Equal(got, []wire.OpenTicket{{Key: "good", Expiry: 7}, {Key: "left", Expiry: 0}}) {
		t.Errorf("got %v", got)
	}
}

// Changes are announced at once, and an unchanged job periodically. A failure is reported once and
// retried soon.
func TestAnnouncer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeDiscovery{}
		var said []string
		a := newAnnouncer(f, func(s string) { said = append(said, s) })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan wire.Known)
		go func() { ended <- a.run(ctx) }()
		expect := func(what string, calls int, want ...elastic.ID) {
			t.Helper()
			synctest.Wait()
			if got, n := f.announcedIDs("key"); !slices.Equal(got, want) || n != calls {
				t.Errorf("%s: %v after %d calls, want %v after %d", what, got, n, want, calls)
			}
		}
		<-time.After(2*announcePeriod + announceGap)
		expect("nothing is known", 0)
		a.update(openJob("x"))
		<-time.After(time.Millisecond)
		expect("the first", 1, "0")
		a.update(openJob("x", "y"))
		a.update(openJob("x", "y", "z"))
		expect("a gap", 1, "0")
		<-time.After(announceGap)
		expect("the latest", 2, "0", "1", "2")
		<-time.After(announcePeriod)
		expect("again", 3, "0", "1", "2")
		f.fail(errors.New("discovery: no bootstrap node answers\nat all"))
		<-time.After(announcePeriod + 3*announceRetry)
		f.fail(nil)
		<-time.After(announceRetry)
		synctest.Wait()
		if len(said) != 2 || !strings.Contains(said[0], "no bootstrap node answers") || strings.Contains(said[0], "\n") || len(said[0]) > 200 {
			t.Errorf("said %q", said)
		}
		a.update(openJob("y"))
		<-time.After(announceGap)
		synctest.Wait()
		k := openJob("y")
		k.Tickets = nil // revoked
		_, before := f.announcedIDs("key")
		a.update(k)
		<-time.After(3 * announcePeriod)
		expect("without tickets", before, "0")
		cancel()
		if last := <-ended; len(last.Members) != 1 {
			t.Errorf("ended with %v", last)
		}
	})
}

// An announced job is found at once. A job that is announced later is found then. A long wait is
// reported once.
func TestSeeker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeDiscovery{err: errors.New("discovery: no bootstrap node answers")}
		var said []string
		found := make(chan []elastic.Member, 1000)
		s := &seeker{from: f, key: "key", say: func(s string) { said = append(said, s) }, found: func(m []elastic.Member) { found <- m }}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.run(ctx); close(done) }()
		<-time.After(time.Minute)
		f.fail(nil)
		<-time.After(time.Minute)
		synctest.Wait()
		if len(said) != 2 || !strings.Contains(said[0], "no bootstrap") || !strings.Contains(said[1], "nobody has announced") {
			t.Errorf("said %q", said)
		}
		if err := f.Announce(ctx, []string{"key"}, openJob("x").Members); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if got := <-found; len(got) != 1 || time.Since(begun) > maxLookupPause {
			t.Errorf("found %v after %v", got, time.Since(begun))
		}
		if _, calls := f.announcedIDs("key"); calls > 60 {
			t.Errorf("%d calls in two minutes", calls)
		}
		cancel()
		<-done
	})
}

// A member that listens on loopback only is not announced.
func TestNearMembersAreNotAnnounced(t *testing.T) {
	k := openJob("x", "y")
	k.Members[0].Addrs = k.Members[0].Addrs[:1]
	if a := announcementOf(k, time.Now()); len(a.members) != 1 || a.members[0].ID != "1" {
		t.Errorf("announced %v", a.members)
	}
}
