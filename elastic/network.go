package elastic

import (
	"context"
	"errors"
	"io"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic/member"
	"github.com/elrun/elrun/event"
)

// Network is the access of one identity to the other peers of its job. All methods are safe for
// concurrent use.
//
// It carries three kinds of traffic. Control messages go between processes that know each other's
// IDs, independent of views. Requests carry offers and copies of the state, on streams of their
// own, so that long answers do not delay control messages (head-of-line blocking). Each view has a
// data plane of its own.
type Network interface {
	// Send passes a control message of at most MaxControl bytes to the network, and connects to the
	// peer first if needed. If Send returns nil the message may still be lost. The caller may reuse
	// msg afterwards. An error that is ErrGone means that certainly no process listens at the
	// peer's addresses; any other error means that no answer came.
	Send(ctx context.Context, to ID, msg []byte) error
	// Events returns the channel of control messages and connection changes, in the order in which
	// they were observed. The receiver must keep reading. The channel is closed when the network is
	// closed.
	Events() <-chan PeerEvent
	// Redial drops the connections with a peer that has been silent for long. Data that is stuck in
	// them no longer delays anything, and the next Send makes a new connection. It does not block.
	Redial(peer ID)
	// Introduce admits connections from the members and adds their addresses to the known
	// addresses. It does not block.
	Introduce(members []Member) error
	// Request sends a request of at most MaxRequest bytes to a peer and returns the answer as a
	// stream. The caller closes the stream; closing it early cancels the request. ctx bounds the
	// whole answer. An answer that the peer broke off ends with an error other than io.EOF.
	Request(ctx context.Context, to ID, request []byte) (io.ReadCloser, error)
	// Serve sets the handler for requests of other peers. Serve is called before the first request
	// may arrive. The function answer is called in a goroutine of its own for each request. Its ctx
	// ends, and writes to its w fail, when the peer has broken the request off or the network
	// closes. If answer returns an error the stream is broken off: the peer reads an error in place
	// of io.EOF.
	Serve(answer func(ctx context.Context, from ID, request []byte, w io.Writer) error)
	// Connect opens the data plane of a view. It returns a Transport between the members of v as
	// soon as this member is connected with the members that it needs at once; in a small view
	// these are all members. The argument self is the caller's rank. All members of v call it, at
	// about the same time. The caller owns the Transport and closes it. An error that a member has
	// caused is a *collective.PeerError with its rank. An error that no later view can resolve
	// wraps ErrNoView, and ends the caller's part in the job.
	Connect(ctx context.Context, v View, self int) (transport.Transport, error)
}

// MaxRequest is the longest request of Network.Request, in bytes.
const MaxRequest = 64 << 10

// Endpoint is one identity on the network of a job.
type Endpoint struct {
	Self    Member
	Network Network
	// Keys signs decisions, to prove them to peers that did not vote on them. Without Keys
	// decisions count only among members of one view, and the branches of a divided job cannot
	// reunite.
	Keys Keys
	// Addrs returns the addresses at which this process can be reached now. If it is nil, the
	// addresses in Self are used.
	Addrs func() []string
	// Relay allows this process to use relays. If two processes that may use relays cannot connect
	// with each other, a third process passes on their messages.
	Relay bool
	// Complete returns a copy of members with the addresses that this process has learned since
	// they joined. If it is nil, newcomers receive the addresses of the view.
	Complete func(members []Member) []Member
	// Vouch introduces other newcomers to the Network of a newcomer. A member has named them, and
	// they are in no view yet. If it is nil, Network.Introduce is used.
	Vouch func(newcomers []Member) error
	// Close takes the identity off the network, and closes the channel of Network.Events.
	Close func() error
}

// self returns the description of this process with its present addresses.
func (e Endpoint) self() Member {
	m := e.Self
	if e.Addrs != nil {
		m.Addrs = e.Addrs()
	}
	return m
}

// complete calls Complete, or returns members if Complete is nil.
func (e Endpoint) complete(members []Member) []Member {
	if e.Complete == nil {
		return members
	}
	return e.Complete(members)
}

// vouch calls Vouch, or Network.Introduce if Vouch is nil.
func (e Endpoint) vouch(newcomers []Member) error {
	if e.Vouch == nil {
		return e.Network.Introduce(newcomers)
	}
	return e.Vouch(newcomers)
}

// keys returns the keys of an endpoint for elastic/member, or nil.
func (ep Endpoint) keys() member.Keys {
	if ep.Keys == nil {
		return nil
	}
	return memberKeys{ep.Keys}
}

// ErrGone means that no process listens any more at the peer's addresses: its process has ended, or
// its identity was closed.
var ErrGone = errors.New("no process listens at the peer's addresses")

// ErrOutside means that a peer is no member: it is a newcomer itself, and waits to be let in. An error
// of a Request may be ErrOutside.
var ErrOutside = errors.New("the peer is a newcomer itself")

// MaxControl is the longest control message, in bytes.
const MaxControl = 4 << 20

// PeerEvent is an event of the control network.
type PeerEvent struct {
	Peer ID
	Kind PeerEventKind
	Data []byte // the message of a PeerMessage; the receiver owns it
	Err  error  // the cause of a PeerDown
}

// PeerEventKind is the kind of a PeerEvent.
type PeerEventKind uint8

// The kinds of events.
const (
	PeerMessage PeerEventKind = iota + 1 // a control message from Peer has arrived
	PeerUp                               // a connection with Peer was made
	PeerDown                             // the last connection with Peer ended
)

// Pather is implemented by a Transport that can describe, for the event log, how it reaches the
// other ranks.
type Pather interface {
	// Path describes the path to another rank. The caller fills in Who. Its Kind is empty if there
	// is no connection, as in large views most pairs connect only when they first communicate.
	Path(rank int) event.Path
}

// Keys signs with the key of one identity and verifies the signatures of all identities. The
// network implements Keys, because an ID contains the public key or the hash of it.
type Keys interface {
	// Sign returns the signature of text by this identity, at most 128 bytes.
	Sign(text []byte) []byte
	// Verify reports whether signature is the signature of text by the identity id.
	Verify(id ID, text, signature []byte) bool
}

// memberKeys adapts Keys to elastic/member.
type memberKeys struct{ Keys }

// Verify implements member.Keys.
func (m memberKeys) Verify(id member.ID, text, signature []byte) bool {
	return m.Keys.Verify(ID(id), text, signature)
}
