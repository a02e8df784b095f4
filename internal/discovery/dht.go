package discovery

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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

// prefix begins the protocol IDs of the table. It separates this table from other tables, such as
// the public table of IPFS.
const prefix protocol.ID = "/elrun"

// freshAge is the age below which a record with the same content is not written again. All
// launchers of a job announce its members, and within this time only the first launcher writes a
// record.
const freshAge = 15 * time.Second

// recordAge is how long nodes keep a record that is not announced again.
const recordAge = 10 * time.Minute

// sessionTime is the time limit of an announcement or a lookup. It includes the connections and all
// records of the call.
const sessionTime = 10 * time.Second

// announceAtOnce bounds the records that are announced at the same time.
const announceAtOnce = 8

// Errors of DHT. Compare them with errors.Is.
var (
	// ErrNoBootstrap reports that no bootstrap node answers.
	ErrNoBootstrap = errors.New("no bootstrap node answers")
	// ErrHeld reports that another holder of the ticket has announced a record with the highest
	// number, which no other record can replace.
	ErrHeld = errors.New("another holder of the ticket blocks the record of the job in the DHT: revoke the ticket")
)

// DHT announces and finds members in the distributed hash table of some bootstrap nodes. It is
// safe for concurrent use. Each call makes its own connections, under a fresh ID, and closes them
// before it returns.
type DHT struct {
	bootstrap []peer.AddrInfo
}

// New returns the table of the bootstrap nodes with these addresses: an IP address or a DNS name,
// a TCP port and an ID, as Bootstrap.Addrs returns them. It does not connect to them.
func New(bootstrap ...string) (*DHT, error) {
	nodes, err := parseBootstrap(bootstrap)
	switch {
	case err != nil:
		return nil, fmt.Errorf("discovery: %w", err)
	case len(nodes) == 0:
		return nil, errors.New("discovery: no bootstrap node given: start one with elrun bootstrap, and name its address")
	}
	return &DHT{nodes}, nil
}

// Announce makes the members known under each of the keys, for some minutes. It connects to the
// bootstrap nodes, writes a record for each key, and closes its connections: nothing runs after it.
// It returns the first error; the other keys may have been announced.
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
		return cmp.Or(errs...) // one error is enough
	})
}

// announce writes one record with a number that makes it the newest under its name.
func announce(ctx context.Context, table *dht.IpfsDHT, key string, members []elastic.Member) error {
	k, err := deriveKeys(key)
	if err != nil {
		return err
	}
	// Quorum 0 completes the query instead of returning after a few answers, so that the newest
	// record of the table is found.
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

// Find returns the members that were announced under a key. They are not authenticated: any process
// that knows the key can announce other members. An empty result is no error. Like Announce, Find
// closes all its connections.
func (d *DHT) Find(ctx context.Context, key string) (found []elastic.Member, err error) {
	k, err := deriveKeys(key)
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

// session connects to the bootstrap nodes, calls do, and closes all connections. The options are
// for tests.
func (d *DHT) session(ctx context.Context, do func(context.Context, *dht.IpfsDHT) error, options ...dht.Option) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sessionTime, fmt.Errorf("no answer within %v", sessionTime))
	defer cancel()
	// A fresh key for each session keeps nodes from following one process over time by its ID.
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

// tableOptions returns the options that clients and servers share. Provider records, which name the
// peers that have some content, are disabled: the table has only records of jobs.
func tableOptions(records *store) []dht.Option {
	return []dht.Option{dht.ProtocolPrefix(prefix), dht.Validator(validator{}), dht.DisableProviders(), dht.Datastore(records),
		dht.MaxRecordAge(recordAge), dht.ValueGCInterval(recordAge / 2)}
}

// connect returns when one of the bootstrap nodes is in the routing table.
func connect(ctx context.Context, n *node, table *dht.IpfsDHT, nodes []peer.AddrInfo) error {
	// The buffer has room for each goroutine, so none blocks after connect has returned.
	failed := make(chan error, len(nodes))
	var work sync.WaitGroup
	defer work.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// All nodes are tried at the same time; the first that enters the routing table is enough.
	for _, info := range nodes {
		work.Go(func() {
			if err := n.Connect(ctx, info); err != nil {
				failed <- fmt.Errorf("%w (%s): %w", ErrNoBootstrap, addrOf(info), dialError(err))
			}
		})
	}
	// A node enters the routing table when it has sent its protocols and answered a query.
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

// tablePeriod is the interval of checks of the routing table.
const tablePeriod = 10 * time.Millisecond

// addrOf returns a name of a node for people: its first address or its ID.
func addrOf(info peer.AddrInfo) string {
	if len(info.Addrs) == 0 {
		return info.ID.String()
	}
	return info.Addrs[0].String()
}
