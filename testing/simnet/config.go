package simnet

import (
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mesh"
)

// Plane is one of the three kinds of traffic between members.
type Plane uint8

// The planes. Methods with a list of planes apply to all planes if the list is empty.
const (
	Control Plane = iota // control messages, of elastic.Network
	Data                 // messages of the collectives of a session
	Bulk                 // state that donors send to newcomers
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

// Any means every member in the methods that name a link, including members that join later.
const Any elastic.ID = ""

// Link describes the connection from one member to another.
type Link struct {
	Delay time.Duration // delay of every frame
	// Lag is the maximum of a random delay that is added to Delay for each frame. Frames of one stream keep their order, so a
	// frame may be later than drawn.
	Lag time.Duration
	// Bandwidth is in bytes per second; 0 means no limit. Streams that send at the same time share it equally.
	Bandwidth int
	// Retransmit is the probability for each frame of a stream to be lost. As with TCP the sender sends the frame again after a
	// timeout, which doubles each time, and later frames of the stream wait for it.
	Retransmit float64
	// Loss, Duplicate and Reorder are probabilities for each control message: to be lost, to arrive twice, or to be delayed so
	// that later messages can overtake it. The additional delay is at most Delay+Lag, or 10 ms if Delay+Lag is smaller. The other
	// planes are streams, so these faults do not apply to them.
	Loss, Duplicate, Reorder float64
}

// Config describes a network. The zero value is a network without delays and faults.
type Config struct {
	// Seed determines all random numbers.
	Seed uint64
	// Link describes all links until SetLink changes them.
	Link Link
	// Window is the number of unread bytes that a stream accepts before Send blocks. 0 means 1 MiB.
	// With a bandwidth, the stream also accepts the bytes that are in flight.
	Window int
	// Plan chooses the pairs of ranks that have lanes from the beginning of a view. nil means the
	// default of package mesh.
	Plan mesh.Plan
	// ResetDelay is the time from the kill of a member to the end of its connections, in addition
	// to the delay of the links. It simulates the time in which a kernel frees the memory of a
	// process. 0 means 1 ms.
	ResetDelay time.Duration
	// Backoff is the maximum time between the end of a cut and the next frame of a stream. As with
	// TCP, the sender retries at growing intervals. The time is drawn from [0, Backoff).
	Backoff time.Duration
}

// Message is a message that a member is about to send.
type Message struct {
	From, To elastic.ID
	Plane    Plane
	// Number is the position of the message among all messages of From on this plane, from 1.
	Number int
	// Bytes is the length of the payload.
	Bytes int
	// Epoch and Envelope identify a message on the data plane.
	Epoch    uint64
	Envelope transport.Envelope
	// Payload is the content of a control message, or of a request on the bulk plane. Otherwise it is nil. It must be neither
	// changed nor kept.
	Payload []byte
}

// overhead is the size of a frame without its payload, in bytes.
const overhead = 64

// withDefaults replaces zero values by the defaults.
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
