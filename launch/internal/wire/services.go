package wire

import (
	"fmt"

	"github.com/elrun/elrun/launch/spec"
)

// DirectoryUpdate is the launcher's message about services to the processes of a program: first
// about all services, then about each change.
type DirectoryUpdate struct {
	// Refused is the reason why this process does not belong to the program. No other field is set
	// with it.
	Refused string `json:"refused,omitempty"`
	// Host is the host of the process, "" for the launcher's host. Secret is the shared secret of
	// the program's connections between hosts. Both are set in the first update.
	Host   string `json:"host,omitempty"`
	Secret []byte `json:"secret,omitempty"`
	// Wide reports that the program runs on several hosts, so that services listen on TCP as well.
	Wide     bool           `json:"wide,omitempty"`
	Services []ServiceEntry `json:"services,omitempty"`
}

// ServiceEntry is the location of a service. Without Socket and Ended the service is about to
// start.
type ServiceEntry struct {
	Name   string   `json:"name"`
	Host   string   `json:"host,omitempty"`
	Socket string   `json:"socket,omitempty"` // path of a Unix socket on Host
	Addrs  []string `json:"addrs,omitempty"`  // HOST:PORT of TCP listeners
	Ended  string   `json:"ended,omitempty"`  // why the service has ended for good
}

// ServingNode is a service's message to the launcher: the addresses on which it listens.
type ServingNode struct {
	Socket string   `json:"socket"`
	Addrs  []string `json:"addrs,omitempty"`
}

// check returns an error for an update beyond the limits, which no correct launcher sends.
func (d DirectoryUpdate) check() error {
	if len(d.Services) > spec.MaxNodes || len(d.Secret) != 0 && len(d.Secret) != SecretSize {
		return fmt.Errorf("directory of %d services, want at most %d; secret of %d bytes, want %d", len(d.Services), spec.MaxNodes, len(d.Secret), SecretSize)
	}
	for _, s := range d.Services {
		if err := (ServingNode{s.Socket, s.Addrs}).check(); err != nil {
			return fmt.Errorf("service %q: %w", s.Name, err)
		}
	}
	return nil
}

// check returns an error for a message beyond the limits, which no correct node sends.
func (s ServingNode) check() error {
	if len(s.Socket) > MaxSocketPath || len(s.Addrs) > maxAddrs {
		return fmt.Errorf("socket path of %d bytes, want at most %d; %d addresses, want at most %d", len(s.Socket), MaxSocketPath, len(s.Addrs), maxAddrs)
	}
	return nil
}

// MaxSocketPath is the longest path of a socket that all systems accept, in bytes.
const MaxSocketPath = 103
