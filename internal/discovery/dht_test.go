package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	datastore "github.com/ipfs/go-datastore"
	dht "github.com/libp2p/go-libp2p-kad-dht"
	"go.uber.org/goleak"

	"github.com/elrun/elrun/elastic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hang is the time limit for an operation in a test, generous enough for a busy machine.
const hang = 4 * time.Minute

// bootstrap starts a node on loopback and returns it and its address.
func bootstrap(t *testing.T, cfg Server) (*Bootstrap, string) {
	t.Helper()
	if cfg.Identity == "" {
		cfg.Identity = filepath.Join(t.TempDir(), "key")
	}
	if cfg.Listen == nil {
		cfg.Listen = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}
	}
	b, err := Serve(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	addrs, err := b.Addrs()
	if err != nil || len(addrs) != 1 {
		t.Fatal(addrs, err)
	}
	return b, addrs[0]
}

// client returns a DHT that uses the nodes at the addresses.
func client(t *testing.T, addrs ...string) *DHT {
	t.Helper()
	d, err := New(addrs...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// patiently returns a context with the time limit hang.
func patiently(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

// eventually calls f until it returns true. One failure is not final, because on a busy machine a session may exceed its time
// limit.
func eventually(t *testing.T, what string, f func(ctx context.Context) (bool, error)) {
	t.Helper()
	ctx := patiently(t)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		ok, err := f(ctx)
		if ok {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// announced announces members, and repeats this until it succeeds.
func (d *DHT) announced(t *testing.T, key string, members ...elastic.Member) {
	t.Helper()
	eventually(t, "announce", func(ctx context.Context) (bool, error) {
		err := d.Announce(ctx, []string{key}, members)
		return err == nil, err
	})
}

// finds returns the IDs of the members that the DHT finds under a key.
func (d *DHT) finds(t *testing.T, key string) (ids []elastic.ID) {
	t.Helper()
	eventually(t, "find", func(ctx context.Context) (bool, error) {
		found, err := d.Find(ctx, key)
		ids = nil
		for _, m := range found {
			ids = append(ids, m.ID)
		}
		return err == nil, err
	})
	return ids
}

func TestAnnounceAndFind(t *testing.T) {
	_, addr := bootstrap(t, Server{})
	d := client(t, addr)
	eventually(t, "announce", func(ctx context.Context) (bool, error) {
		err := d.Announce(ctx, []string{"one", "two"}, []elastic.Member{member("a", 2), member("b", 1)})
		return err == nil, err
	})
	for _, key := range []string{"one", "two"} {
		if got := d.finds(t, key); !slices.Equal(got, []elastic.ID{"a", "b"}) {
			t.Errorf("found %v", got)
		}
	}
	if got := d.finds(t, "another"); len(got) > 0 {
		t.Errorf("found %v", got)
	}
	d.announced(t, "one", member("b", 1))
	if got := d.finds(t, "one"); !slices.Equal(got, []elastic.ID{"b"}) {
		t.Errorf("found %v", got)
	}
	d.announced(t, "one") // as at the end of the job
	if got := d.finds(t, "one"); len(got) > 0 {
		t.Errorf("found %v", got)
	}
}

// A record that was announced at one of several bootstrap nodes is found through another node. It is still found after the first
// node has died.
func TestSeveralNodes(t *testing.T) {
	first, at := bootstrap(t, Server{})
	second, there := bootstrap(t, Server{Others: []string{at}})
	eventually(t, "the nodes know each other", func(context.Context) (bool, error) {
		return first.table.RoutingTable().Size() == 1 && second.table.RoutingTable().Size() == 1, nil
	})
	// The copy for the second node may be lost on a busy machine, and an announcement succeeds with
	// one copy. The test then repeats the announcement, as launchers do, and a record older than
	// freshAge is written again.
	eventually(t, "both nodes have the record", func(ctx context.Context) (bool, error) {
		err := client(t, at).Announce(ctx, []string{"one"}, []elastic.Member{member("a", 1)})
		return records(t, first)+records(t, second) == 2, err
	})
	eventually(t, "find by the other node", func(ctx context.Context) (bool, error) {
		found, err := client(t, there).Find(ctx, "one")
		return len(found) == 1, err
	})
	if err := first.node.Network().Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "find with one node dead", func(ctx context.Context) (bool, error) {
		found, err := client(t, at, there).Find(ctx, "one")
		return len(found) == 1, err
	})
}

// A node refuses a record that is not signed with the key of its name, and a record that is older
// than the record that the node has.
func TestNodeRefuses(t *testing.T) {
	b, addr := bootstrap(t, Server{})
	one, forger := of(t, "one"), of(t, "forger")
	d := client(t, addr)
	d.announced(t, "one", member("a", 1))
	forged, err := forger.seal(1<<62, []elastic.Member{member("evil", 1)})
	if err != nil {
		t.Fatal(err)
	}
	old, err := one.seal(1, []elastic.Member{member("old", 1)})
	if err != nil {
		t.Fatal(err)
	}
	// A client without these checks sends the records.
	liar := liarOf(t, d)
	for _, record := range [][]byte{forged, old, []byte("junk"), make([]byte, 1<<20)} {
		liar(t, one.name(), record)
	}
	if got := d.finds(t, "one"); !slices.Equal(got, []elastic.ID{"a"}) {
		t.Errorf("found %v", got)
	}
	if n := records(t, b); n != 1 {
		t.Errorf("%d records", n)
	}
}

// records returns the number of records in a node.
func records(t *testing.T, b *Bootstrap) int {
	t.Helper()
	b.records.mu.Lock()
	defer b.records.mu.Unlock()
	if len(b.records.there) != len(b.records.oldest) {
		t.Errorf("%d and %d records", len(b.records.there), len(b.records.oldest))
	}
	return len(b.records.oldest)
}

// credulous is a validator that accepts every record.
type credulous struct{}

func (credulous) Validate(string, []byte) error        { return nil }
func (credulous) Select(string, [][]byte) (int, error) { return 0, nil }

// liarOf returns a function that sends records without validation to the nodes of a DHT.
func liarOf(t *testing.T, d *DHT) func(t *testing.T, name string, record []byte) {
	return func(t *testing.T, name string, record []byte) {
		t.Helper()
		eventually(t, "send a record", func(ctx context.Context) (bool, error) {
			err := d.session(ctx, func(ctx context.Context, table *dht.IpfsDHT) error { return table.PutValue(ctx, name, record) }, dht.Validator(credulous{}))
			return err == nil, err
		})
	}
}

// A flood of records, validly signed with other keys, uses bounded memory. A record that is announced afterwards is found.
func TestFlood(t *testing.T) {
	const most = 20
	b, addr := bootstrap(t, Server{most: most})
	d := client(t, addr)
	d.announced(t, "one", member("a", 1))
	var junk []string
	for i := range 3 * most {
		junk = append(junk, fmt.Sprint("junk", i))
	}
	eventually(t, "flood", func(ctx context.Context) (bool, error) {
		err := d.Announce(ctx, junk, nil)
		return err == nil, err
	})
	if n := records(t, b); n != most {
		t.Errorf("%d records, want %d", n, most)
	}
	d.announced(t, "one", member("a", 1))
	if got := d.finds(t, "one"); len(got) != 1 {
		t.Errorf("found %v", got)
	}
}

func TestStore(t *testing.T) {
	s := newStore(2)
	ctx := t.Context()
	put := func(k string) {
		t.Helper()
		if err := s.Put(ctx, datastore.NewKey(k), []byte(k)); err != nil {
			t.Fatal(err)
		}
	}
	put("a")
	put("b")
	put("a") // written again, but still the oldest
	put("c")
	for k, want := range map[string]bool{"a": false, "b": true, "c": true} {
		if got, err := s.Has(ctx, datastore.NewKey(k)); got != want || err != nil {
			t.Errorf("%s: %v, %v", k, got, err)
		}
	}
	batch, err := s.Batch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"d", "e", "f"} {
		if err := batch.Put(ctx, datastore.NewKey(k), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(batch.Commit(ctx), s.Delete(ctx, datastore.NewKey("f"))); err != nil {
		t.Fatal(err)
	}
	if there, err := s.Has(ctx, datastore.NewKey("f")); there || err != nil || len(s.oldest) > 2 || len(s.there) != len(s.oldest) {
		t.Errorf("%d records, %v", len(s.oldest), err)
	}
}

// If no node answers, the error names a node and the cause on one line.
func TestNoBootstrap(t *testing.T) {
	b, addr := bootstrap(t, Server{})
	if err := b.node.Network().Close(); err != nil {
		t.Fatal(err)
	}
	_, err := client(t, addr).Find(patiently(t), "one")
	if !errors.Is(err, ErrNoBootstrap) || !strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "\n") || len(err.Error()) > 200 {
		t.Errorf("got %v", err)
	}
}

// A node has the same ID after a restart. It refuses an identity file that others can read.
func TestIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "key")
	first, err := identity(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := identity(path)
	if err != nil || !first.Equals(again) {
		t.Errorf("another key: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := identity(path); err == nil || !strings.Contains(err.Error(), "private") {
		t.Errorf("a file that all may read: %v", err)
	}
	if err := os.WriteFile(path+"2", []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{path + "2", filepath.Dir(path), os.DevNull} {
		if _, err := identity(bad); err == nil {
			t.Errorf("%s makes an identity", bad)
		}
	}
}

// Serve returns an error for an address that is in use.
func TestListenTaken(t *testing.T) {
	b, _ := bootstrap(t, Server{})
	taken := b.node.Network().ListenAddresses()[0]
	port, err := taken.ValueForProtocol(6)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Serve(t.Context(), Server{Identity: filepath.Join(t.TempDir(), "key"), Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:" + port)}})
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

// A client does not listen, and after its session no node can reach it.
func TestClientsListenNowhere(t *testing.T) {
	b, addr := bootstrap(t, Server{})
	eventually(t, "a session", func(ctx context.Context) (bool, error) {
		err := client(t, addr).session(ctx, func(_ context.Context, table *dht.IpfsDHT) error {
			if at := table.Host().Network().ListenAddresses(); len(at) > 0 {
				t.Errorf("it listens at %v", at)
			}
			for _, p := range b.node.Network().Peers() {
				if known := b.node.Peerstore().Addrs(p); len(known) > 0 {
					t.Errorf("the node knows %v", known)
				}
			}
			return nil
		})
		return err == nil, err
	})
	eventually(t, "it is gone", func(context.Context) (bool, error) { return len(b.node.Network().Peers()) == 0, nil })
	if n := b.table.RoutingTable().Size(); n > 0 {
		t.Errorf("the node would send others to %d clients", n)
	}
}
