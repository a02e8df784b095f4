package transport

import "time"

// Meter is what a Transport may implement to tell the pace of its links: the time from
// the header of a message to its last byte. Only messages count that are long enough to
// tell it. Ranks count in the transport. All methods are safe for concurrent use.
type Meter interface {
	// Arrived returns, by rank, what has come from each since the last call.
	Arrived() []Arrival
	// Probe sends so many bytes that nobody receives, at most MaxProbe, for the other side
	// to measure. It does not block, and does nothing while another probe to that rank is
	// on its way.
	Probe(to, bytes int)
}

// MaxProbe is the longest probe of a Meter, in bytes.
const MaxProbe = 1 << 20

// Arrival is what has come over a link: so many bytes took so long.
type Arrival struct {
	Bytes int64
	Time  time.Duration
}
