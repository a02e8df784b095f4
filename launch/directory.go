package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// directoryUpdate is the launcher's message about services to the processes of a program: first
// about all services, then about each change.
type directoryUpdate struct {
	// Refused is the reason why this process does not belong to the program. No other field is set
	// with it.
	Refused string `json:"refused,omitempty"`
	// Host is the host of the process, "" for the launcher's host. Secret is the shared secret of
	// the program's connections between hosts. Both are set in the first update.
	Host   string `json:"host,omitempty"`
	Secret []byte `json:"secret,omitempty"`
	// Wide reports that the program runs on several hosts, so that services listen on TCP as well.
	Wide     bool           `json:"wide,omitempty"`
	Services []serviceEntry `json:"services,omitempty"`
}

// serviceEntry is the location of a service. Without Socket and Ended the service is about to
// start.
type serviceEntry struct {
	Name   string   `json:"name"`
	Host   string   `json:"host,omitempty"`
	Socket string   `json:"socket,omitempty"` // path of a Unix socket on Host
	Addrs  []string `json:"addrs,omitempty"`  // HOST:PORT of TCP listeners
	Ended  string   `json:"ended,omitempty"`  // why the service has ended for good
}

// servingNode is a service's message to the launcher: the addresses on which it listens.
type servingNode struct {
	Socket string   `json:"socket"`
	Addrs  []string `json:"addrs,omitempty"`
}

// check returns an error for an update beyond the limits, which no correct launcher sends.
func (u directoryUpdate) check() error {
	if len(u.Services) > maxNodes || len(u.Secret) != 0 && len(u.Secret) != secretSize {
		return fmt.Errorf("directory of %d services, want at most %d; secret of %d bytes, want %d", len(u.Services), maxNodes, len(u.Secret), secretSize)
	}
	for _, s := range u.Services {
		if err := (servingNode{s.Socket, s.Addrs}).check(); err != nil {
			return fmt.Errorf("service %q: %w", s.Name, err)
		}
	}
	return nil
}

// check returns an error for a message beyond the limits, which no correct node sends.
func (s servingNode) check() error {
	if len(s.Socket) > maxSocketPath || len(s.Addrs) > maxAddrs {
		return fmt.Errorf("socket path of %d bytes, want at most %d; %d addresses, want at most %d", len(s.Socket), maxSocketPath, len(s.Addrs), maxAddrs)
	}
	return nil
}

// directory has the services of a program, in each process of the program. Updates from the
// launcher change it; find waits until a service listens. It is safe for concurrent use.
type directory struct {
	// mu guards the fields below.
	mu       sync.Mutex
	host     string
	secret   []byte
	wide     bool          // services listen on TCP as well
	refused  string        // why this process does not belong to the program
	begun    chan struct{} // closed at the first update
	changed  chan struct{} // closed and replaced at each update
	services map[string]serviceEntry
}

// newDirectory returns an empty directory.
func newDirectory() *directory {
	return &directory{begun: make(chan struct{}), changed: make(chan struct{}), services: make(map[string]serviceEntry)}
}

// learn applies an update from the launcher.
func (d *directory) learn(u directoryUpdate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	// Only the first update describes the process itself; later updates carry changed services.
	case <-d.begun:
	default:
		d.host, d.secret, d.wide, d.refused = u.Host, u.Secret, u.Wide, u.Refused
		close(d.begun)
	}
	for _, s := range u.Services {
		d.services[s.Name] = s
	}
	// This wakes every call of find, which then looks up its service again.
	close(d.changed)
	d.changed = make(chan struct{})
}

// wait waits for the first update, the death of the launcher (gone) or the end of ctx.
func (d *directory) wait(ctx context.Context, gone context.Context) error {
	select {
	case <-d.begun:
	case <-gone.Done():
		return fmt.Errorf("%w: its process has ended", ErrLauncher)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if d.refused != "" {
		return fmt.Errorf("%w: %s", ErrLauncher, d.refused)
	}
	return nil
}

// find waits until a service listens, and returns its entry. A service that has ended for good is
// errGone.
func (d *directory) find(ctx context.Context, name string) (serviceEntry, error) {
	for {
		d.mu.Lock()
		// The channel is taken together with the entry, so that no update between here and the wait
		// below is missed.
		entry, changed := d.services[name], d.changed
		d.mu.Unlock()
		switch {
		case entry.Ended != "":
			return entry, fmt.Errorf("%w: %s", errGone, entry.Ended)
		case entry.Socket != "":
			return entry, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return entry, context.Cause(ctx)
		}
	}
}

// dialPeriod is the time limit of a connection attempt to one address, so that an address behind a
// firewall does not delay the attempts at the other addresses.
const dialPeriod = 2 * time.Second

// dial connects to a service: through its Unix socket on the same host, by TLS on other hosts.
func (d *directory) dial(ctx context.Context, name string) (net.Conn, error) {
	entry, err := d.find(ctx, name)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	// On the same host: the Unix socket, whose other end must belong to the same user or to root.
	if entry.Host == d.host {
		conn, err := dialer.DialContext(ctx, "unix", entry.Socket)
		if err == nil {
			if err = sameUser(conn); err != nil {
				_ = conn.Close()
			}
		}
		return conn, err
	}
	config, err := programTLS(d.secret)
	if err != nil {
		return nil, err
	}
	// On another host the addresses are tried in order.
	errs := []error{fmt.Errorf("host %s has no address", entry.Host)}
	for i, addr := range entry.Addrs {
		if i == 0 {
			errs = nil
		}
		conn, err := dialTLS(ctx, addr, config)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
