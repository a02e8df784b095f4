package program

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/elrun/elrun/internal/sharedkey"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/inpeer"
	"github.com/elrun/elrun/launch/internal/wire"
)

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
	services map[string]wire.ServiceEntry
}

// newDirectory returns an empty directory.
func newDirectory() *directory {
	return &directory{begun: make(chan struct{}), changed: make(chan struct{}), services: make(map[string]wire.ServiceEntry)}
}

// learn applies an update from the launcher.
func (d *directory) learn(u wire.DirectoryUpdate) {
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
		return fmt.Errorf("%w: its process has ended", inpeer.ErrLauncher)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if d.refused != "" {
		return fmt.Errorf("%w: %s", inpeer.ErrLauncher, d.refused)
	}
	return nil
}

// find waits until a service listens, and returns its entry. A service that has ended for good is
// errGone.
func (d *directory) find(ctx context.Context, name string) (wire.ServiceEntry, error) {
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
			if err = ctl.SameUser(conn); err != nil {
				_ = conn.Close()
			}
		}
		return conn, err
	}
	config, err := sharedkey.TLS(d.secret, purpose, errForeign)
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

// dialTLS connects to an address within dialPeriod.
func dialTLS(ctx context.Context, addr string, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPeriod)
	defer cancel()
	dialer := tls.Dialer{Config: config}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	return conn, nil
}
