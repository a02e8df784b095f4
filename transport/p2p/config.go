package p2p

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/transport/mesh"
)

// Config is the configuration of a Host. Only Job is required.
type Config struct {
	// Job is the name of the job. Both ends of a data connection compare it. It has at most
	// mesh.MaxJob bytes.
	Job string
	// ListenAddrs are the multiaddrs to listen at, such as /ip4/127.0.0.1/tcp/0. An address may
	// have a range of ports, such as /ip4/192.0.2.1/tcp/7000-7019. The host then takes free ports
	// of the range: one for libp2p and, unless Path is p2p, one for direct connections. Empty means
	// all IPv4 interfaces and any port.
	ListenAddrs []string
	// OnOpen is called when a member reports that the job was opened to the network. It calls Open
	// if the user allows that, and otherwise returns an error. Several goroutines may call it at
	// once. Nil refuses.
	OnOpen func() error
	// OnVersion is called when the first newcomer of another version was refused, with an error that
	// wraps ErrVersion. It may be nil.
	OnVersion func(error)
	// OnObituaries is called with the obituaries that anybody may bring, and returns true if all are true
	// and the group knows of them now. It checks the signatures. Several goroutines may call it at once.
	// Nil refuses.
	OnObituaries func([]Obituary) bool
	// Path is the kind of connection that carries data:
	//
	//   - "auto" (also ""): the best kind that exists for each peer;
	//   - "shm": shared memory; an error unless all members of the view are on one host and share memory;
	//   - "unix": Unix sockets within a host, and direct connections between hosts;
	//   - "direct": direct connections other than libp2p's;
	//   - "p2p": streams of libp2p.
	//
	// Except for "shm", a libp2p stream is the fallback where the wanted kind fails.
	Path string
	// Encrypt says whether direct connections are encrypted: "auto" (also "") and "always" encrypt,
	// "never" does not encrypt if both sides have "never". Bytes that stay within a host's kernel
	// are never encrypted; libp2p's streams are always encrypted.
	Encrypt string
	// Relay says whether members relay for each other: "never" (also "") or "members". With
	// "members" this host uses a third member as the relay to a member with which it cannot
	// connect, and relays for others. All three hosts must have "members". The two ends also try
	// hole punching through their routers.
	Relay string
	// Admission is the admission policy for newcomers. Without it only introduced members are
	// admitted. SetAdmission sets it later.
	Admission AdmissionPolicy

	// HostKey is the secret that hosts of one kernel share, HostKeySize bytes long. Hosts with the
	// same key reach each other by Unix sockets alone. UseHostKey sets it later.
	HostKey []byte
	// Memory is the memory for vectors that other processes of the host may read; nil lets the mesh make its
	// own (mesh.Config).
	Memory mesh.Memory

	handshake time.Duration                          // tests: replaces handshakeTime; 0 for the default
	plan      mesh.Plan                              // tests: plan of the lanes of a view; nil for the usual plan
	gateway   func(context.Context) (gateway, error) // tests: replaces discoverGateway
	loopback  bool                                   // tests: loopback counts as a network between hosts, for relays
	punch     bool                                   // tests: hole punching is tried on loopback, too
}

// encryptNames returns the values of Config.Encrypt. The index of each is its code in an offer.
func encryptNames() []string { return []string{"auto", "always", "never"} }

// neverEncrypt is the code of "never".
const neverEncrypt = 2

// neverRelay is the code of "never".
const neverRelay = 0

// code returns the index of name in names; 0 for "". The error names the option by the parameter
// what.
func code(what, name string, names []string) (byte, error) {
	if name == "" {
		return 0, nil
	}
	i := slices.Index(names, name)
	if i < 0 {
		return 0, fmt.Errorf("unknown %s %q (%s)", what, name, strings.Join(names, " or "))
	}
	return byte(i), nil
}
