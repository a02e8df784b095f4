package transport

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/elrun/elrun/dtype"
)

// Kind is the operation of a call. The values are part of the wire format.
type Kind uint8

// The operations.
const (
	KindAllReduce Kind = iota + 1
	KindReduceScatter
	KindAllGather
	KindBroadcast
	KindReduce
	KindGather
	KindScatter
	KindAllToAll
	KindScan
	KindExScan
	KindBarrier
	KindSplit
	KindPoint // Send or Recv
	KindAllToAllV
)

// String returns the name of the operation in errors, logs and flags.
func (k Kind) String() string {
	names := [...]string{"none", "allreduce", "reducescatter", "allgather", "broadcast", "reduce",
		"gather", "scatter", "alltoall", "scan", "exscan", "barrier", "split", "send/recv", "alltoallv"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Call describes one call. All ranks of a communicator must make the same calls in the same
// order; two Calls are the same if they are equal by ==. Ranks compare Calls to detect
// programs that differ.
type Call struct {
	Kind Kind
	Type dtype.Type // of the elements, zero if the call has none
	// Algorithm is the algorithm that was chosen for the call, never Auto.
	Algorithm Algorithm
	Width     uint8    // elements of a group that the reduction combines as one; 0 stands for 1
	Op        [16]byte // name of the reduction, truncated or padded with zeros
	Root      int32    // -1 if the call has none
	Layout    uint32   // hash of the counts of the ranks and of the order of a ring, 0 if both are the defaults
	Count     uint64   // elements of the whole vector; 0 for KindAllToAllV
	Segment   uint32   // maximum bytes of a message: the unit of pipelining
}

// CallSize is the length of an encoded Call in bytes.
const CallSize = 40

// Append appends the encoded call to b: CallSize bytes, integers in little-endian order.
func (c Call) Append(b []byte) []byte {
	b = append(b, byte(c.Kind), byte(c.Type), byte(c.Algorithm), c.Width)
	b = append(b, c.Op[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(c.Root))
	b = binary.LittleEndian.AppendUint32(b, c.Layout)
	b = binary.LittleEndian.AppendUint64(b, c.Count)
	return binary.LittleEndian.AppendUint32(b, c.Segment)
}

// DecodeCall reads the output of Append. Any CallSize bytes are decoded without an error. An
// invalid call differs from every real call, so the comparison with the local call rejects it.
func DecodeCall(b []byte) (Call, error) {
	if len(b) < CallSize {
		return Call{}, fmt.Errorf("transport: decode call: %d bytes, want %d", len(b), CallSize)
	}
	c := Call{Kind: Kind(b[0]), Type: dtype.Type(b[1]), Algorithm: Algorithm(b[2]), Width: b[3]}
	copy(c.Op[:], b[4:20])
	c.Root = int32(binary.LittleEndian.Uint32(b[20:]))
	c.Layout = binary.LittleEndian.Uint32(b[24:])
	c.Count = binary.LittleEndian.Uint64(b[28:])
	c.Segment = binary.LittleEndian.Uint32(b[36:])
	return c, nil
}

// String describes the call in the terms of its caller, as in "reduce float32[1000] sum
// root 2".
func (c Call) String() string {
	var s strings.Builder
	s.WriteString(c.Kind.String())
	if c.Type != 0 {
		fmt.Fprintf(&s, " %v", c.Type)
		if c.Kind != KindAllToAllV {
			fmt.Fprintf(&s, "[%d]", c.Count)
		}
	}
	if op := strings.TrimRight(string(c.Op[:]), "\x00"); op != "" {
		fmt.Fprintf(&s, " %s", strings.ToValidUTF8(op, "?"))
	}
	if c.Width > 0 {
		fmt.Fprintf(&s, " of width %d", c.Width)
	}
	if c.Root >= 0 {
		fmt.Fprintf(&s, " root %d", c.Root)
	}
	if c.Layout != 0 {
		fmt.Fprintf(&s, " layout #%08x", c.Layout)
	}
	if c.Algorithm != Auto {
		fmt.Fprintf(&s, " by %v", c.Algorithm)
	}
	return s.String()
}
