package discovery

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	dht "github.com/libp2p/go-libp2p-kad-dht"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/connmgr"
	"github.com/multiformats/go-multiaddr"

	"github.com/elrun/elrun/internal/private"
)

// Server is the configuration of a bootstrap node.
type Server struct {
	// Identity is the file with the key of the node. Serve makes the file if it does not exist.
	Identity string
	Listen   []netip.AddrPort // addresses to listen on
	Others   []string         // addresses of bootstrap nodes that share the records with it
	most     int              // limit of records; 0 for maxRecords
}

// Bootstrap is a running bootstrap node.
type Bootstrap struct {
	node    *node                 // host of the table
	manager *connmgr.BasicConnMgr // closes idle connections when there are too many
	table   *dht.IpfsDHT
	records *store // the records of the table, kept in memory only
}

// idleTime is the age from which a connection may be closed in favour of others. A client's session
// is shorter than idleTime, so that the node interrupts no session.
const idleTime = 20 * time.Second

// Serve starts a bootstrap node, which runs until Close; ctx limits the start only. The error names
// an invalid address of another node, a key file that cannot be read, or an address at which it
// cannot listen.
func Serve(ctx context.Context, cfg Server) (*Bootstrap, error) {
	others, err := parseBootstrap(cfg.Others)
	if err != nil {
		return nil, fmt.Errorf("discovery: serve: %w", err)
	}
	key, err := identity(cfg.Identity)
	if err != nil {
		return nil, fmt.Errorf("discovery: serve: %w", err)
	}
	b := &Bootstrap{records: newStore(cmp.Or(cfg.most, maxRecords))}
	if b.manager, err = connmgr.NewConnManager(maxConns/2, maxConns*3/4, connmgr.WithGracePeriod(idleTime)); err != nil {
		return nil, fmt.Errorf("discovery: serve: %w", err)
	}
	if b.node, err = newNode(key, b.manager); err != nil {
		return nil, fmt.Errorf("discovery: serve: %w", errors.Join(err, b.manager.Close()))
	}
	b.table, err = dht.New(b.node, append(tableOptions(b.records), dht.Mode(dht.ModeServer), dht.BootstrapPeers(others...))...)
	if err == nil {
		err = b.listen(cfg.Listen)
	}
	if err == nil {
		err = b.table.Bootstrap(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("discovery: serve: %w", errors.Join(err, b.Close()))
	}
	return b, nil
}

// listen begins to listen on the addresses. On a host without IPv6, [::] is skipped without an
// error unless it is the first address: it is a default that users have not asked for.
func (b *Bootstrap) listen(addrs []netip.AddrPort) error {
	for i, a := range addrs {
		family := "ip6"
		if a.Addr().Is4() {
			family = "ip4"
		}
		at, err := multiaddr.NewMultiaddr(fmt.Sprintf("/%s/%s/tcp/%d", family, a.Addr().WithZone(""), a.Port()))
		if err == nil {
			err = b.node.Network().Listen(at)
		}
		if err != nil && (i == 0 || a.Addr() != netip.IPv6Unspecified()) {
			return fmt.Errorf("listen at %v: %w", a, dialError(err))
		}
	}
	return nil
}

// Addrs returns the addresses at which the node listens, with its ID, as multiaddrs for the
// bootstrap lists of clients. For an unspecified listen address it returns the addresses of all
// interfaces.
func (b *Bootstrap) Addrs() ([]string, error) {
	addrs, err := b.node.Network().InterfaceListenAddresses()
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	all, err := peer.AddrInfoToP2pAddrs(&peer.AddrInfo{ID: b.node.ID(), Addrs: addrs})
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	var out []string
	for _, a := range all {
		out = append(out, a.String())
	}
	return out, nil
}

// Close ends the node and waits for its goroutines.
func (b *Bootstrap) Close() error {
	var errs []error
	// The table uses the node, so the table is closed first. The table is nil if Serve failed
	// before it made the table.
	if b.table != nil {
		errs = append(errs, b.table.Close())
	}
	return errors.Join(append(errs, b.node.Close(), b.manager.Close())...)
}

// identity reads the key of a bootstrap node from a file, and makes the file if there is none. So
// the node has the same ID after a restart: its addresses contain the ID.
func identity(path string) (crypto.PrivKey, error) {
	seed, err := readSeed(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeSeed(path); err == nil {
			seed, err = readSeed(path) // another node may have been faster: then this is the seed of that node
		}
	}
	if err != nil {
		return nil, err
	}
	key, err := crypto.UnmarshalEd25519PrivateKey(ed25519.NewKeyFromSeed(seed))
	if err != nil {
		return nil, fmt.Errorf("identity %s: %w", path, err)
	}
	return key, nil
}

// readSeed reads a node's seed from the file at path. It refuses a file that others can read,
// because they could impersonate the node.
func readSeed(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// O_NONBLOCK above and this check keep a FIFO from blocking the node.
	if !info.Mode().IsRegular() || info.Mode().Perm()&^private.File != 0 {
		return nil, fmt.Errorf("identity %s: not a private file: chmod 600 it, or name another one", path)
	}
	// Room for the seed in hexadecimal and a line end, which may be CR LF.
	text := make([]byte, 2*ed25519.SeedSize+2)
	n, _ := f.Read(text) // with an error there are too few bytes, which is checked below
	seed, err := hex.DecodeString(strings.TrimSpace(string(text[:n])))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("identity %s: not the key of a bootstrap node: name another file, or remove this one", path)
	}
	return seed, nil
}

// makeSeed writes a new random seed to the file at path. The file appears with its whole content or
// not at all. If the file exists already, makeSeed does not change it and returns no error.
func makeSeed(path string) error {
	if err := private.MkdirAll(filepath.Dir(path)); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-") // mode 0600, as private.File has it
	if err != nil {
		return err
	}
	// The link at the end is a second name for the same file, so this name is removed in any case.
	defer os.Remove(f.Name())
	seed := make([]byte, ed25519.SeedSize)
	_, err = rand.Read(seed)
	if err == nil {
		_, err = fmt.Fprintln(f, hex.EncodeToString(seed))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	// A link fails if the file exists, so a concurrent start cannot replace the seed.
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
