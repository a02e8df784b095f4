package collective

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// signal is a message between watches.
type signal struct {
	kind     byte
	env      transport.Envelope
	blocking bool          // of an ask: the sender does nothing else with the receiver
	state    state         // of a tell
	at       time.Duration // when the ask was sent, by the clock of its sender; a tell brings it back
	plight   plight        // of the sender of a tell
}

// state is where a rank is in relation to a call that it was asked about.
type state uint8

const (
	unknown state = iota // no answer
	present              // in the call
	absent               // not there yet
	past                 // has ended it, as its messages on the way will show
	closed               // will not make it, as it has closed the communicator
)

// plight is how a rank itself is held up, whichever call it was asked about. Ranks are
// those of the transport, -1 for none.
type plight struct {
	inside bool          // it has been in a call for a while
	waits  int32         // the rank that it waits for there
	slow   int32         // the rank that takes longest to answer its roll calls
	took   time.Duration // how long that is
}

// fits reports whether the ranks of p are among n.
func (p plight) fits(n int) bool {
	return p.waits >= -1 && int(p.waits) < n && p.slow >= -1 && int(p.slow) < n
}

const (
	signalAsk  = 1
	signalTell = 2
	signalSize = 1 + 8 + 4 + transport.CallSize + 1 + 8 + 4 + 4 + 8

	flagBlocking = 0x80 // beside the state
	flagInside   = 0x40
)

func (s signal) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(append(b, s.kind), s.env.Comm)
	b = binary.LittleEndian.AppendUint32(b, s.env.Seq)
	b = s.env.Call.Append(b)
	flags := byte(s.state)
	if s.blocking {
		flags |= flagBlocking
	}
	if s.plight.inside {
		flags |= flagInside
	}
	b = binary.LittleEndian.AppendUint64(append(b, flags), uint64(s.at))
	b = binary.LittleEndian.AppendUint32(b, uint32(s.plight.waits))
	b = binary.LittleEndian.AppendUint32(b, uint32(s.plight.slow))
	return binary.LittleEndian.AppendUint64(b, uint64(s.plight.took))
}

func decodeSignal(b []byte) (signal, error) {
	if len(b) != signalSize || (b[0] != signalAsk && b[0] != signalTell) {
		return signal{}, fmt.Errorf("collective: decode signal: %d bytes, want %d", len(b), signalSize)
	}
	call, err := transport.DecodeCall(b[13:])
	if err != nil {
		return signal{}, err
	}
	s := signal{
		kind: b[0],
		env:  transport.Envelope{Comm: binary.LittleEndian.Uint64(b[1:]), Seq: binary.LittleEndian.Uint32(b[9:]), Call: call},
	}
	b = b[13+transport.CallSize:]
	s.blocking, s.state = b[0]&flagBlocking != 0, state(b[0]&^(flagBlocking|flagInside))
	s.at = time.Duration(binary.LittleEndian.Uint64(b[1:]))
	s.plight = plight{
		inside: b[0]&flagInside != 0,
		waits:  int32(binary.LittleEndian.Uint32(b[9:])),
		slow:   int32(binary.LittleEndian.Uint32(b[13:])),
		took:   time.Duration(binary.LittleEndian.Uint64(b[17:])),
	}
	return s, nil
}
