package mesh

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/elrun/elrun/transport/internal/wire"
)

// The messages with which ranks agree to share memory, in the order in which they come.
const (
	// kindReady goes to the first rank, with the files of the sender's event and of its arena, if
	// it has an arena. The mask has the sender's local rank, and the local ranks whose files the
	// sender has from earlier views.
	kindReady = iota + 1
	// kindOffer comes from the first rank, with the memory and, for each rank that was not in the
	// mask of kindReady, the event and the arena. Its mask has the local ranks that have an arena.
	kindOffer
	// kindAck goes to the first rank. It says that the sender has mapped the memory, or why it has
	// not.
	kindAck
	// kindResult comes from the first rank. It says that the memory is used, or why it is not. The
	// mask is not 0 if the error is transient.
	kindResult
)

// shareMessage is the payload of a Share frame. Its format is the same in all versions of the
// program, so that two versions can find out that their layouts differ.
type shareMessage struct {
	kind   byte
	mask   uint64 // a bit for each local rank
	layout uint32 // in kindReady: how the sender's program lays out the memory
	why    string // the reason of a failure; "" for success
}

const (
	// shareFixed is the length of an encoded message without its reason, in bytes.
	shareFixed = 1 + 8 + 4
	// maxWhy is the longest reason that is sent, in bytes.
	maxWhy = 256
)

// append appends the message to b.
//
//	0 kind   1 mask   9 layout   13 why
func (s *shareMessage) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(append(b, s.kind), s.mask)
	b = binary.LittleEndian.AppendUint32(b, s.layout)
	return append(b, s.why[:min(len(s.why), maxWhy)]...)
}

// decodeShare decodes the result of append.
func decodeShare(b []byte) (shareMessage, error) {
	if len(b) < shareFixed || len(b) > shareFixed+maxWhy || b[0] < kindReady || b[0] > kindResult {
		return shareMessage{}, fmt.Errorf("read share: %d bytes: %w", len(b), wire.ErrFormat)
	}
	return shareMessage{b[0], binary.LittleEndian.Uint64(b[1:]), binary.LittleEndian.Uint32(b[9:]), string(b[shareFixed:])}, nil
}

// sendShare sends a message along with files. The caller still owns the files.
func sendShare(c unixStream, m shareMessage, files ...*os.File) error {
	return c.SendFiles(wire.AppendFrame(nil, wire.Share, m.append(nil)), files)
}

// receiveShare receives a message, and files that the caller owns from then on.
func receiveShare(c unixStream) (m shareMessage, files []*os.File, err error) {
	var head [wire.HeaderSize]byte
	files, err = c.ReceiveFiles(head[:])
	if err == nil {
		m, err = receiveBody(c, &head)
	}
	if err != nil {
		closeFiles(files)
		return shareMessage{}, nil, err
	}
	return m, files, nil
}

// receiveBody receives the part of the message behind its header. All files must have come with the
// header.
func receiveBody(c unixStream, head *[wire.HeaderSize]byte) (shareMessage, error) {
	h, err := wire.DecodeHeader(head)
	if err != nil {
		return shareMessage{}, err
	}
	if h.Kind != wire.Share {
		return shareMessage{}, fmt.Errorf("read share: got %v: %w", h.Kind, wire.ErrFormat)
	}
	body := make([]byte, h.Length)
	late, err := c.ReceiveFiles(body)
	closeFiles(late)
	if err == nil && len(late) > 0 {
		err = errors.New("read share: files came after the header")
	}
	if err != nil {
		return shareMessage{}, err
	}
	return decodeShare(body)
}

// closeFiles closes files that are not used. Some may be nil.
func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // also of nil
	}
}
