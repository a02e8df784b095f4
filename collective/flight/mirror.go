package flight

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// A mirror is memory that outlives the process, and has what is needed to tell the calls of a Ring after a crash. It begins with a
// header: a mark, the start of the Ring, and the sessions as JSON. Then each call has a slot, at its number mod Calls:
//
//	offset  0  number        40  sequence number or tag     88  flags
//	        8  communicator  44  peer of a Send or Recv     89  length of the purpose
//	       16  epoch         48  the call, as in messages   90  the purpose, cut to 30 bytes
//	       24  begin                                       120  number
//	       32  end
//
// A slot whose numbers differ was being written when the process died. Left out are waits, texts of errors, and calls in progress that
// 1,024 later calls have overwritten.
const (
	mirrorHead  = 32 << 10
	mirrorSlot  = 128
	mirrorMark  = 0x31746867696c66 // "flight1"
	mirrorStart = 24               // of the sessions
	// MirrorSize is the length in bytes of the memory for Ring.Mirror.
	MirrorSize = mirrorHead + Calls*mirrorSlot

	callAt, purposeAt, checkAt = 48, 90, 120
	sendsFlag, backFlag        = 1, 2
	failedFlag                 = 4
)

// lostError stands for the text of an error that has ended with its process.
const lostError = "it has failed, and its error ended with the process"

// Mirror keeps the calls in memory of MirrorSize bytes, too, from which Recover reads them if the memory outlives this process. It
// is called before the first session. Other memory is ignored.
func (r *Ring) Mirror(memory []byte) {
	if len(memory) != MirrorSize {
		return
	}
	r.mirror = memory
	binary.LittleEndian.PutUint64(memory[8:], uint64(r.start.UnixNano()))
	binary.LittleEndian.PutUint64(memory, mirrorMark)
}

// mirrorSessions writes the latest sessions that fit. The caller holds mu.
func (r *Ring) mirrorSessions() {
	if r.mirror == nil {
		return
	}
	var all []Session
	for _, s := range r.sessions {
		all = append(all, s.about)
	}
	for ; len(all) > 0; all = all[1:] {
		text, err := json.Marshal(all)
		if err == nil && len(text) <= mirrorHead-mirrorStart {
			binary.LittleEndian.PutUint32(r.mirror[16:], uint32(copy(r.mirror[mirrorStart:mirrorHead], text)))
			return
		}
	}
}

// slot returns the slot of a call in a mirror.
func slot(mirror []byte, number uint64) *[mirrorSlot]byte {
	return (*[mirrorSlot]byte)(mirror[mirrorHead+int(number%Calls)*mirrorSlot:])
}

// mirrorBegin writes a call that begins. The caller holds mu.
func (r *Ring) mirrorBegin(e *entry) {
	if r.mirror == nil {
		return
	}
	b, le := slot(r.mirror, e.number), binary.LittleEndian
	le.PutUint64(b[0:], e.number)
	le.PutUint64(b[8:], e.comm)
	le.PutUint64(b[16:], e.session.about.Epoch)
	le.PutUint64(b[24:], uint64(e.begun))
	le.PutUint64(b[32:], 0)
	le.PutUint32(b[40:], e.seq)
	le.PutUint32(b[44:], uint32(e.peer))
	_ = e.call.Append(b[callAt:callAt])
	var flags byte
	if e.sends {
		flags |= sendsFlag
	}
	if e.background {
		flags |= backFlag
	}
	b[88], b[89] = flags, byte(copy(b[purposeAt:checkAt], e.purpose))
	le.PutUint64(b[checkAt:], e.number)
}

// mirrorEnd writes the end of a call, unless another call has its slot. The caller holds mu.
func (r *Ring) mirrorEnd(e *entry) {
	if r.mirror == nil || r.last-e.number >= Calls {
		return
	}
	b := slot(r.mirror, e.number)
	b[88] &^= failedFlag
	if e.err != nil {
		b[88] |= failedFlag
	}
	binary.LittleEndian.PutUint64(b[32:], uint64(e.ended))
}

// Recover returns the record of a process that has ended at a time, from a copy of the memory of its Ring.Mirror. The memory may hold
// anything. The caller fills in the fields about the peer.
func Recover(memory []byte, ended time.Time) (Record, error) {
	le := binary.LittleEndian
	if len(memory) != MirrorSize || le.Uint64(memory) != mirrorMark {
		return Record{}, errors.New("flight: recover a record: the memory is not that of a ring")
	}
	start := time.Unix(0, int64(le.Uint64(memory[8:])))
	out := Record{Version: Version, Taken: ended, Ended: true, Calls: []Call{}, Sessions: []Session{}}
	text := memory[mirrorStart:mirrorHead]
	if n := le.Uint32(memory[16:]); n > 0 && int(n) <= len(text) {
		if err := json.Unmarshal(text[:n], &out.Sessions); err != nil {
			return Record{}, fmt.Errorf("flight: recover a record: sessions: %w", err)
		}
	}
	for i := range uint64(Calls) {
		if b := slot(memory, i); le.Uint64(b[0:])%Calls == i && le.Uint64(b[0:]) > 0 && le.Uint64(b[checkAt:]) == le.Uint64(b[0:]) {
			out.add(b, start, ended)
		}
	}
	slices.SortFunc(out.Calls, func(a, b Call) int { return cmp.Compare(a.Number, b.Number) })
	if err := out.Check(); err != nil {
		return Record{}, fmt.Errorf("flight: recover a record: %w", err)
	}
	return out, nil
}

// add adds the call in a slot, if it is one.
func (r *Record) add(b *[mirrorSlot]byte, start, ended time.Time) {
	le := binary.LittleEndian
	call, err := transport.DecodeCall(b[callAt:])
	if err != nil {
		return
	}
	e := entry{number: le.Uint64(b[0:]), comm: le.Uint64(b[8:]), session: &Recorder{about: Session{Epoch: le.Uint64(b[16:])}},
		begun: time.Duration(le.Uint64(b[24:])), ended: time.Duration(le.Uint64(b[32:])), seq: le.Uint32(b[40:]), peer: int(int32(le.Uint32(b[44:]))),
		call: call, sends: b[88]&sendsFlag != 0, background: b[88]&backFlag != 0, wait: Wait{For: -1}}
	e.purpose = strings.ToValidUTF8(string(b[purposeAt:][:min(int(b[89]), checkAt-purposeAt)]), "")
	c := e.export(start, ended)
	if b[88]&failedFlag != 0 {
		c.Error = lostError
	}
	r.Calls, r.Total = append(r.Calls, c), max(r.Total, e.number)
}
