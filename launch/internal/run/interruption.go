package run

import (
	"time"

	"github.com/elrun/elrun/launch/internal/wire"
)

// interruption decides what a further signal to the launcher means, after the first one has asked
// the peers to leave. It starts no timers, reads no clock, and is not safe for concurrent use.
//
//	begin --signal within RepeatPeriod--> repeated
//	      --later signal----------------> kill
//	begin by the end of the context, as on a preempted machine, where SIGTERM follows
//	      --first signal----------------> acknowledge; from then on as above
type interruption struct {
	at        time.Time // time of the first signal
	byContext bool      // begun by the end of the context, and no signal has come since
}

// signalEffect is the effect of a further signal.
type signalEffect int

// The effects of a further signal.
const (
	signalRepeated     signalEffect = iota // the signal repeats the previous one
	signalAcknowledged                     // this is the first signal; the peers are leaving already
	signalKills                            // the peers are killed
)

// begin records the first signal, or the end of the context in its place, at now.
func (i *interruption) begin(byContext bool, now time.Time) { i.at, i.byContext = now, byContext }

// again returns the effect of a further signal at now.
func (i *interruption) again(now time.Time) signalEffect {
	switch {
	case i.byContext:
		i.begin(false, now)
		return signalAcknowledged
	case now.Sub(i.at) >= wire.RepeatPeriod:
		return signalKills
	}
	return signalRepeated
}
