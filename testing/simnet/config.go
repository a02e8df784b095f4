package simnet

import (
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
)

// Plane is one of the three kinds of traffic between members.
type Plane uint8

// The planes. Methods that take any number of them mean all where none is named.
const (
	Control Plane = iota // messages of elastic.Network
	Data                 // messages of a session's collectives
	Bulk                 // state that is copied
	planes
)

// String returns control, data or bulk.
func (p Plane) String() string {
	switch p {
	case Control:
		return "control"
	case Data:
		return "data"
	case Bulk:
		return "bulk"
	}
	return "unknown plane"
}

// Any stands for every member, those to come included, where a link is named.
const Any elastic.ID = ""

// Link is how the way from one member to another behaves.
type Link struct {
	Delay time.Duration // of every frame
	// Lag is added to Delay: each frame draws from [0, Lag). Frames of one stream keep
	// their order, so they come later rather than overtake.
	Lag time.Duration
	// Bandwidth is in bytes a second; 0 means no limit. What is on its way at the same
	// time shares it in equal parts.
	Bandwidth int
	// Loss, Duplicate and Reorder are probabilities that a control message is lost, comes
	// twice, or may be overtaken: by those sent within Delay+Lag, at least 10 ms. The
	// other planes are streams, where none of this can happen.
	Loss, Duplicate, Reorder float64
}

// Config describes a network. The zero value is one without delays and faults.
type Config struct {
	// Seed determines everything random.
	Seed uint64
	// Link is what all links are like until SetLink changes them.
	Link Link
	// Window is how many bytes a stream takes in before what was sent is read; then Send
	// blocks. 0 means 1 MiB. Where there is a bandwidth, what fits on the way is added.
	Window int
	// ResetDelay is how long after a kill the connections of the killed break, besides
	// the delay of the link: a process frees its memory first. 0 means 1 ms.
	ResetDelay time.Duration
	// Backoff is how long it may take after a cut has healed, at most, until a stream
	// flows again, as its sender tries again ever more rarely. It is drawn from
	// [0, Backoff).
	Backoff time.Duration
}

// Message is one that a member is about to send.
type Message struct {
	From, To elastic.ID
	Plane    Plane
	// Number counts what From has sent on this plane in its life; the first is 1.
	Number int
	// Bytes is the length of the payload.
	Bytes int
	// Epoch and Envelope say what a message of the data plane belongs to.
	Epoch    uint64
	Envelope transport.Envelope
	// Payload is a control message, or a request on the bulk plane; nil otherwise. It
	// must be neither changed nor kept.
	Payload []byte
}

// overhead is what a frame costs besides its payload, in bytes.
const overhead = 64

// withDefaults fills in what was left out.
func (c Config) withDefaults() Config {
	if c.Window == 0 {
		c.Window = 1 << 20
	}
	if c.ResetDelay == 0 {
		c.ResetDelay = time.Millisecond
	}
	return c
}

// all returns ps, or all planes if there are none.
func all(ps []Plane) []Plane {
	if len(ps) == 0 {
		return []Plane{Control, Data, Bulk}
	}
	return ps
}
