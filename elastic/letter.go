package elastic

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/elrun/elrun/elastic/member"
)

// letterKind is the first byte of a control message.
type letterKind byte

const (
	// letterMember carries a message between the machines of elastic/member.
	letterMember letterKind = iota + 1
	// letterBeat says that its sender lives, and what it does.
	letterBeat
	// letterYield asks a member that holds up the others to make way.
	letterYield
	// letterForeign says that a peer of another launcher is about to be let in, so that
	// no launcher knows of all deaths any more; letterForeignAck that this was noted.
	letterForeign
	letterForeignAck
	// letterProbe asks a member to ask another one for a word. It is answered by
	// letterProbed at once, with which the helper shows that it is heard itself, and
	// again when that word has come.
	letterProbe
	letterProbed
)

// beat is the body of a letterBeat.
type beat struct {
	Entered uint64   // epoch of the session that the sender is in, or wants to enter
	Step    uint64   // last step that it has committed
	Reply   bool     // it wants a beat in return
	Deaf    bool     // it has not heard the receiver for too long
	Leaving bool     // it has asked to leave
	Ended   bool     // it leaves because the job is at its end
	Sole    bool     // as far as it knows one launcher has started everybody
	Stalled bool     // it makes way, as it holds up the others
	First   [32]byte // Hash of the first view as it was told; zero once that is agreed
	Busy    string   // why it makes no progress, or empty
}

// maxBusy bounds the reason of a busy member, in bytes.
const maxBusy = 100

// errLetter: a control message that makes no sense.
var errLetter = errors.New("malformed control message")

// flags of a beat, bit by bit.
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

// append writes the letter of a beat.
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

// decodeBeat reads what follows the kind.
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

// yield is the body of a letterYield.
type yield struct {
	Epoch uint64 // of the session that is held up
}

func (y yield) append(b []byte) []byte {
	return binary.AppendUvarint(append(b, byte(letterYield)), y.Epoch)
}

func decodeYield(b []byte) (yield, error) {
	epoch, n := binary.Uvarint(b)
	if n <= 0 || n != len(b) {
		return yield{}, fmt.Errorf("yield: %w", errLetter)
	}
	return yield{epoch}, nil
}

// memberLetter writes the letter of a machine's message.
func memberLetter(m member.Message) []byte {
	return member.Encode([]byte{byte(letterMember)}, m)
}

// probing is the body of a letterProbe and a letterProbed.
type probing struct {
	About ID
	Heard bool // of letterProbed: that member has said a word since it was asked
}

func (p probing) append(kind letterKind, b []byte) []byte {
	heard := byte(0)
	if p.Heard {
		heard = 1
	}
	return append(append(b, byte(kind), heard), p.About...)
}

func decodeProbe(b []byte) (probing, error) {
	if len(b) < 2 || len(b) > 1+member.MaxID || b[0] > 1 {
		return probing{}, fmt.Errorf("probe: %w", errLetter)
	}
	return probing{About: ID(b[1:]), Heard: b[0] == 1}, nil
}
