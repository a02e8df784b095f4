package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// directory is what a launcher tells the processes of a program: at first about all services, then
// about each that changes.
type directoryUpdate struct {
	// Refused says why this process is none of the program; nothing else is set then.
	Refused string `json:"refused,omitempty"`
	// Host is the host of the process, "" for that of the launcher, and Secret that of the
	// program's connections between hosts. They come first.
	Host   string `json:"host,omitempty"`
	Secret []byte `json:"secret,omitempty"`
	// Wide: the program runs on several hosts, so services listen at their addresses, too.
	Wide     bool           `json:"wide,omitempty"`
	Services []serviceEntry `json:"services,omitempty"`
}

// serviceEntry says where a service is. One that has neither Socket nor Ended is about to come.
type serviceEntry struct {
	Name   string   `json:"name"`
	Host   string   `json:"host,omitempty"`
	Socket string   `json:"socket,omitempty"` // a Unix socket there
	Addrs  []string `json:"addrs,omitempty"`  // HOST:PORT, of TCP
	Ended  string   `json:"ended,omitempty"`  // why it will not come back
}

// servingNode tells the launcher where a service listens.
type servingNode struct {
	Socket string   `json:"socket"`
	Addrs  []string `json:"addrs,omitempty"`
}

// check refuses what no launcher would send.
func (u directoryUpdate) check() error {
	if len(u.Services) > maxNodes || len(u.Secret) != 0 && len(u.Secret) != secretSize {
		return fmt.Errorf("directory of %d services, secret of %d bytes", len(u.Services), len(u.Secret))
	}
	for _, s := range u.Services {
		if err := (servingNode{s.Socket, s.Addrs}).check(); err != nil {
			return fmt.Errorf("service %q: %w", s.Name, err)
		}
	}
	return nil
}

// check refuses what no node would send.
func (s servingNode) check() error {
	if len(s.Socket) > maxSocketPath || len(s.Addrs) > maxAddrs {
		return fmt.Errorf("socket path of %d bytes, %d addresses", len(s.Socket), len(s.Addrs))
	}
	return nil
}

// directory is what a process of a program knows of its services.
type directory struct {
	mu       sync.Mutex
	host     string
	secret   []byte
	wide     bool
	refused  string
	begun    chan struct{} // closed when the first update has come
	changed  chan struct{} // closed at the next change
	services map[string]serviceEntry
}

func newDirectory() *directory {
	return &directory{begun: make(chan struct{}), changed: make(chan struct{}), services: make(map[string]serviceEntry)}
}

// learn takes what the launcher says.
func (d *directory) learn(u directoryUpdate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.begun:
	default:
		d.host, d.secret, d.wide, d.refused = u.Host, u.Secret, u.Wide, u.Refused
		close(d.begun)
	}
	for _, s := range u.Services {
		d.services[s.Name] = s
	}
	close(d.changed)
	d.changed = make(chan struct{})
}

// wait waits for the first update.
func (d *directory) wait(ctx context.Context, gone context.Context) error {
	select {
	case <-d.begun:
	case <-gone.Done():
		return fmt.Errorf("%w: it is gone", ErrLauncher)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if d.refused != "" {
		return fmt.Errorf("%w: %s", ErrLauncher, d.refused)
	}
	return nil
}

// find waits until a service listens, and returns where.
func (d *directory) find(ctx context.Context, name string) (serviceEntry, error) {
	for {
		d.mu.Lock()
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

// dialPeriod is how long a connection to one address may take.
const dialPeriod = 2 * time.Second

// dial connects to a service: on this host by its socket, elsewhere by TLS.
func (d *directory) dial(ctx context.Context, name string) (net.Conn, error) {
	entry, err := d.find(ctx, name)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
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
