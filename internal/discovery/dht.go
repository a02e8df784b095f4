package discovery

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	dht "github.com/libp2p/go-libp2p-kad-dht"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/routing"

	"github.com/elrun/elrun/elastic"
)

// prefix begins the protocols of the table: nodes of other tables are not spoken with.
const prefix protocol.ID = "/elrun"

// freshAge is how old a record may be that says the same and is left as it is: of all that announce
// a job only the first one writes.
const freshAge = 15 * time.Second

// recordAge is how long nodes keep a record that is not announced again.
const recordAge = 10 * time.Minute

// sessionTime is how long an announcement or a question may take in all.
const sessionTime = 10 * time.Second

// announceAtOnce is how many records are announced at a time.
const announceAtOnce = 8

// Sentinels, for errors.Is.
var (
	// ErrNoBootstrap: no bootstrap node answers.
	ErrNoBootstrap = errors.New("no bootstrap node answers")
	// ErrHeld: somebody else has announced the last record that there can be.
	ErrHeld = errors.New("somebody who has the ticket keeps its record from being announced: revoke the ticket")
)

// DHT announces and finds members by the table of some bootstrap nodes. Its methods may be called
// from any goroutine; each call connects anew, under an ID of its own, and leaves nothing behind.
type DHT struct {
	bootstrap []peer.AddrInfo
}

// New returns the table of bootstrap nodes, by their addresses: an IP address or a DNS name, a TCP
// port and an ID, as Bootstrap.Addrs returns them. It connects with nobody yet.
func New(bootstrap ...string) (*DHT, error) {
	nodes, err := parseBootstrap(bootstrap)
	switch {
	case err != nil:
		return nil, fmt.Errorf("discovery: %w", err)
	case len(nodes) == 0:
		return nil, errors.New("discovery: no bootstrap node: there are no public ones, run one of your own")
	}
	return &DHT{nodes}, nil
}

// Announce lets those who know one of the keys find the members, for some minutes.
func (d *DHT) Announce(ctx context.Context, all []string, members []elastic.Member) error {
	return d.session(ctx, func(ctx context.Context, table *dht.IpfsDHT) error {
		errs := make([]error, len(all))
		var work sync.WaitGroup
		slots := make(chan struct{}, announceAtOnce)
		for i, key := range all {
			slots <- struct{}{}
			work.Go(func() {
				errs[i] = announce(ctx, table, key, members)
				<-slots
			})
		}
		work.Wait()
		return cmp.Or(errs...) // one tells why
	})
}

// announce makes one record the newest under its name.
func announce(ctx context.Context, table *dht.IpfsDHT, key string, members []elastic.Member) error {
	k, err := keysOf(key)
	if err != nil {
		return err
	}
	before, err := table.GetValue(ctx, k.name(), dht.Quorum(0))
	if err != nil && !errors.Is(err, routing.ErrNotFound) {
		return err
	}
	number, err := k.next(before, members, time.Now())
	if number == 0 || err != nil {
		return err
	}
	record, err := k.seal(number, members)
	if err != nil {
		return err
	}
	return table.PutValue(ctx, k.name(), record)
}

// next returns the number for a record that is to follow another one, nil for none, or 0 if that
// says the same and is new. Numbers are times, in ms; but the clock of whoever has announced before
// may be ahead.
func (k keys) next(before []byte, members []elastic.Member, now time.Time) (uint64, error) {
	number := uint64(now.UnixMilli())
	if before == nil {
		return number, nil
	}
	last := numberOf(before)
	if last == math.MaxUint64 {
		return 0, ErrHeld
	}
	if last <= number && number-last < uint64(freshAge.Milliseconds()) && k.says(before, members) {
		return 0, nil
	}
	return max(number, last+1), nil
}

// says reports whether a record names the members that one made of these would name.
func (k keys) says(record []byte, members []elastic.Member) bool {
	text, err := encodeMembers(members)
	if err != nil {
		return false
	}
	want, err := decodeMembers(text)
	if err != nil {
		return false
	}
	said, err := k.open(record)
	return err == nil && slices.EqualFunc(said, want, func(a, b elastic.Member) bool { return a.ID == b.ID })
}

// Find returns those who were announced under a key, who may be anybody; none is no error.
func (d *DHT) Find(ctx context.Context, key string) (found []elastic.Member, err error) {
	k, err := keysOf(key)
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	err = d.session(ctx, func(ctx context.Context, table *dht.IpfsDHT) error {
		record, err := table.GetValue(ctx, k.name(), dht.Quorum(0))
		switch {
		case errors.Is(err, routing.ErrNotFound):
			return nil
		case err != nil:
			return err
		}
		found, err = k.open(record)
		return err
	})
	return found, err
}

// session connects with the bootstrap nodes, calls do, and takes leave. The options are for tests.
func (d *DHT) session(ctx context.Context, do func(context.Context, *dht.IpfsDHT) error, options ...dht.Option) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sessionTime, fmt.Errorf("not within %v", sessionTime))
	defer cancel()
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		return fmt.Errorf("discovery: make a key: %w", err)
	}
	n, err := newNode(key, nil)
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	defer n.Close()
	options = slices.Concat(tableOptions(newStore(maxRecords)), []dht.Option{dht.Mode(dht.ModeClient), dht.DisableAutoRefresh()}, options)
	table, err := dht.New(n, options...)
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	defer table.Close()
	if err := connect(ctx, n, table, d.bootstrap); err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	if err := do(ctx, table); err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	return nil
}

// tableOptions are those that clients and servers have alike.
func tableOptions(records *store) []dht.Option {
	return []dht.Option{dht.ProtocolPrefix(prefix), dht.Validator(validator{}), dht.DisableProviders(), dht.Datastore(records),
		dht.MaxRecordAge(recordAge), dht.ValueGCInterval(recordAge / 2)}
}

// connect returns when one of the bootstrap nodes is in the table.
func connect(ctx context.Context, n *node, table *dht.IpfsDHT, nodes []peer.AddrInfo) error {
	failed := make(chan error, len(nodes))
	var work sync.WaitGroup
	defer work.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, info := range nodes {
		work.Go(func() {
			if err := n.Connect(ctx, info); err != nil {
				failed <- fmt.Errorf("%w (%s): %w", ErrNoBootstrap, addrOf(info), dialError(err))
			}
		})
	}
	// A node enters the table when it has said which protocols it speaks, and answered a question.
	look := time.NewTicker(tablePeriod)
	defer look.Stop()
	for lost := 0; ; {
		select {
		case err := <-failed:
			if lost++; lost == len(nodes) {
				return err
			}
		case <-look.C:
			if table.RoutingTable().Size() > 0 {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrNoBootstrap, context.Cause(ctx))
		}
	}
}

// tablePeriod is the time between two looks at the table.
const tablePeriod = 10 * time.Millisecond

// addrOf names a node for people.
func addrOf(info peer.AddrInfo) string {
	if len(info.Addrs) == 0 {
		return info.ID.String()
	}
	return info.Addrs[0].String()
}
