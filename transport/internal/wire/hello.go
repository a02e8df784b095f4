package wire

import (
	"encoding/binary"
	"fmt"
)

// MaxJob is the longest job name, in bytes.
const MaxJob = 255

// Greeting is the payload of a Hello frame: the identity of the sender's endpoint in a view. Two
// processes exchange data only if epoch, lineage and job are equal on both sides.
type Greeting struct {
	Epoch    uint64
	Lineage  [32]byte // hash of the view
	Rank     uint32   // the sender's
	Path     uint8    // the sender's mesh.Path
	KernelID [32]byte // equal on processes that share a kernel; zero if unknown
	Job      string   // at most MaxJob bytes
}

// greetingFixed is the length in bytes of an encoded Greeting without its job name.
const greetingFixed = 8 + 32 + 4 + 1 + 32 + 1

// Append appends the encoded greeting to b:
//
//	0 epoch   8 lineage   40 rank   44 path   45 kernel ID   77 length of job   78 job
func (g *Greeting) Append(b []byte) ([]byte, error) {
	if len(g.Job) > MaxJob {
		return b, fmt.Errorf("wire: encode hello: job name of %d bytes, at most %d: %w", len(g.Job), MaxJob, ErrLimit)
	}
	b = binary.LittleEndian.AppendUint64(b, g.Epoch)
	b = append(b, g.Lineage[:]...)
	b = binary.LittleEndian.AppendUint32(b, g.Rank)
	b = append(append(b, g.Path), g.KernelID[:]...)
	return append(append(b, byte(len(g.Job))), g.Job...), nil
}

// DecodeGreeting decodes the result of Append; b is the whole payload.
func DecodeGreeting(b []byte) (Greeting, error) {
	if len(b) < greetingFixed || len(b) != greetingFixed+int(b[greetingFixed-1]) {
		return Greeting{}, fmt.Errorf("wire: decode hello: %d bytes: %w", len(b), ErrFormat)
	}
	return Greeting{
		Epoch:    binary.LittleEndian.Uint64(b),
		Lineage:  [32]byte(b[8:]),
		Rank:     binary.LittleEndian.Uint32(b[40:]),
		Path:     b[44],
		KernelID: [32]byte(b[45:]),
		Job:      string(b[greetingFixed:]),
	}, nil
}
