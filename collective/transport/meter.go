package transport

import "time"

// Meter is an optional interface of a Transport. It measures the throughput of links: the time from
// the header of a message to its last byte. Short messages are not measured, because their time
// depends on latency and not on the link's bandwidth. Ranks are ranks of the transport. All methods
// are safe for concurrent use.
type Meter interface {
	// Arrived returns, by rank, the measurements since the last call.
	Arrived() []Arrival
	// Probe sends a message of the given number of bytes, at most MaxProbe, to the rank to.
	// That rank measures and discards the message. Probe does not block. It does nothing
	// while an earlier probe to that rank is under way.
	Probe(to, bytes int)
}

// MaxProbe is the maximum length of a probe of a Meter, in bytes.
const MaxProbe = 1 << 20

// Arrival is the sum of the measured messages of a link.
type Arrival struct {
	Bytes int64         // payload
	Time  time.Duration // how long the payload took to arrive
}
