package elastic

import (
	"context"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/internal/event"
)

// Control carries membership messages between processes that know each other's
// ID, whatever view they are in.
type Control interface {
	// Send delivers msg, at most MaxControl bytes, to the peer or returns an error;
	// nil says that it was handed to the network, not that it arrived. It connects
	// first where needed. msg may be reused afterwards.
	Send(ctx context.Context, to ID, msg []byte) error
	// Events returns messages and changes of connection in the order in which they
	// were seen. The receiver must keep reading. It is closed when the network is.
	Events() <-chan PeerEvent
}

// MaxControl is the longest control message, in bytes.
const MaxControl = 1 << 20

// PeerEvent is something that happened on the control network.
type PeerEvent struct {
	Peer ID
	Kind PeerEventKind
	Data []byte // of a PeerMessage; the receiver owns it
	Err  error  // of a PeerDown, why
}

// PeerEventKind tells the kinds of PeerEvent apart.
type PeerEventKind uint8

// The kinds of events.
const (
	PeerMessage PeerEventKind = iota + 1
	PeerUp                    // a connection with Peer was made
	PeerDown                  // the last connection with Peer ended
)

// Connector opens the data plane of a view.
type Connector interface {
	// Connect returns a Transport between the members of v as soon as every one of
	// them is reachable; self is the caller's rank. All members of v call it, at
	// about the same time. The caller owns the Transport and closes it. An error of
	// which a member is the cause is a *collective.PeerError that names it.
	Connect(ctx context.Context, v View, self int) (collective.Transport, error)
}

// Pather is what a Transport may implement to tell the event log how it reaches the
// others.
type Pather interface {
	// Path describes the way to another rank; the caller fills in Who.
	Path(rank int) event.Path
}
