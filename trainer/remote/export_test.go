package remote

import (
	"io"
	"slices"
)

// Kinds of frames, for programs in tests.
const (
	Hello   = kindHello
	Work    = kindWork
	Done    = kindDone
	Apply   = kindApply
	Applied = kindApplied
	Save    = kindSave
	Blob    = kindBlob
	Load    = kindLoad
	Loaded  = kindLoaded
	AtPoint = kindPoint
	Part    = kindPart
	Sum     = kindSum
	GoOn    = kindGoOn
	End     = kindEnd
	Leave   = kindLeave
	Fail    = kindFail
	Ahead   = kindAhead
	Busy    = kindBusy
)

// Kind is the kind of a frame.
type Kind = kind

// Message is a frame.
type Message struct {
	Kind    Kind
	A       int64
	B       float64
	Payload []byte
}

// Bytes returns the encoded frame.
func (m Message) Bytes() []byte {
	f := frame{m.Kind, m.A, m.B, m.Payload}
	return slices.Concat(f.head(), f.payload)
}

// Receive reads a frame.
func Receive(r io.Reader) (Message, error) {
	f, err := readFrame(r)
	return Message{f.kind, f.a, f.b, f.payload}, err
}
