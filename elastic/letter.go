package elastic

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/elrun/elrun/elastic/member"
)

// letterKind is the first byte of a control message, and gives its kind.
type letterKind byte

const (
	// letterMember carries a message between the membership machines of elastic/member.
	letterMember letterKind = iota + 1
	// letterBeat is a heartbeat with the state of its sender.
	letterBeat
	// letterYield asks a member that holds up the others to make way.
	letterYield
	// letterForeign announces that a peer of another launcher is about to be admitted, so that no
	// launcher knows of all deaths any more; letterForeignAck acknowledges it.
	letterForeign
	letterForeignAck
	// letterProbe asks a helper for an indirect probe of another member. The helper answers with
	// letterProbed at once, which shows that it can be reached itself, and again when it has heard
	// that member.
	letterProbe
	letterProbed
	// letterCall asks a member to connect with a newcomer that cannot connect with it.
	letterCall
	lettersEnd
)

// beat is the body of a letterBeat: the heartbeat of a member.
type beat struct {
	Entered uint64   // epoch of the session that the sender is in or is entering
	Step    uint64   // last step that it has committed
	Reply   bool     // the sender wants a heartbeat in return
	Deaf    bool     // the receiver has been silent for too long, as the sender sees it
	Leaving bool     // the sender has asked to leave
	Ended   bool     // the sender leaves because the job is at its end
	Sole    bool     // as far as the sender knows one launcher has started all members
	Stalled bool     // the sender makes way, as it holds up the others
	First   [32]byte // Hash of the sender's first view; zero once that view is agreed
	Busy    string   // why the sender makes no progress, or empty
}

// maxBusy bounds the reason of a busy member, in bytes.
const maxBusy = 100

// errLetter means that a control message is malformed.
var errLetter = errors.New("malformed control message")

// The flags of a beat, one bit each.
const (
	flagReply = 1 << iota
	flagDeaf
	flagLeaving
	flagEnded
	flagSole
	flagFirst
	flagStalled
	flagsEnd
)

// append appends the encoded control message of a beat to b.
func (t beat) append(b []byte) []byte {
	flags := byte(0)
	for i, set := range []bool{t.Reply, t.Deaf, t.Leaving, t.Ended, t.Sole, t.First != [32]byte{}, t.Stalled} {
		if set {
			flags |= 1 << i
		}
	}
	b = append(b, byte(letterBeat), flags)
	b = binary.AppendUvarint(binary.AppendUvarint(b, t.Entered), t.Step)
	if flags&flagFirst != 0 {
		b = append(b, t.First[:]...)
	}
	return append(b, t.Busy[:min(len(t.Busy), maxBusy)]...)
}

// decodeBeat decodes a beat from the bytes after the kind.
func decodeBeat(b []byte) (beat, error) {
	if len(b) < 1 || b[0] >= flagsEnd {
		return beat{}, fmt.Errorf("beat: %w", errLetter)
	}
	flags := b[0]
	t := beat{Reply: flags&flagReply != 0, Deaf: flags&flagDeaf != 0, Leaving: flags&flagLeaving != 0, Ended: flags&flagEnded != 0,
		Sole: flags&flagSole != 0, Stalled: flags&flagStalled != 0}
	b = b[1:]
	for _, field := range []*uint64{&t.Entered, &t.Step} {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return beat{}, fmt.Errorf("beat: %w", errLetter)
		}
		*field, b = v, b[n:]
	}
	if flags&flagFirst != 0 {
		if len(b) < len(t.First) {
			return beat{}, fmt.Errorf("beat: %w", errLetter)
		}
		b = b[copy(t.First[:], b):]
	}
	if len(b) > maxBusy {
		return beat{}, fmt.Errorf("beat of a member that is busy with %d bytes: %w", len(b), errLetter)
	}
	t.Busy = string(b)
	return t, nil
}

// yield is the body of a letterYield: a request to make way.
type yield struct {
	Epoch uint64 // epoch of the session that is held up
}

// append appends the encoded control message of a yield to b.
func (y yield) append(b []byte) []byte {
	return binary.AppendUvarint(append(b, byte(letterYield)), y.Epoch)
}

// decodeYield decodes a yield from the bytes after the kind.
func decodeYield(b []byte) (yield, error) {
	epoch, n := binary.Uvarint(b)
	if n <= 0 || n != len(b) {
		return yield{}, fmt.Errorf("yield: %w", errLetter)
	}
	return yield{epoch}, nil
}

// memberLetter encodes a control message that carries a message of a membership machine.
func memberLetter(m member.Message) []byte {
	return member.Encode([]byte{byte(letterMember)}, m)
}

// probing is the body of a letterProbe and of a letterProbed.
type probing struct {
	About ID   // the member that is probed
	Heard bool // in a letterProbed: the helper has heard that member since the probe
}

// append appends the encoded control message of a probe to b.
func (p probing) append(kind letterKind, b []byte) []byte {
	heard := byte(0)
	if p.Heard {
		heard = 1
	}
	return append(append(b, byte(kind), heard), p.About...)
}

// decodeProbe decodes a probing from the bytes after the kind.
func decodeProbe(b []byte) (probing, error) {
	if len(b) < 2 || len(b) > 1+member.MaxID || b[0] > 1 {
		return probing{}, fmt.Errorf("probe: %w", errLetter)
	}
	return probing{About: ID(b[1:]), Heard: b[0] == 1}, nil
}
