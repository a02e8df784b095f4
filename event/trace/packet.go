package trace

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Numbers of the fields of messages, from protos/perfetto/trace: trace.proto, trace_packet.proto, clock_snapshot.proto,
// interned_data/interned_data.proto and the files of track_event.
const (
	tracePacket protowire.Number = 1

	packetClocks     protowire.Number = 6
	packetTime       protowire.Number = 8
	packetSequence   protowire.Number = 10
	packetEvent      protowire.Number = 11
	packetInterned   protowire.Number = 12
	packetFlags      protowire.Number = 13
	packetDescriptor protowire.Number = 60
	packetFirst      protowire.Number = 87 // first_packet_on_sequence

	clocksClock protowire.Number = 1
	clockID     protowire.Number = 1
	clockTime   protowire.Number = 2

	internedCategory protowire.Number = 1
	internedName     protowire.Number = 2
	internedArg      protowire.Number = 3
	entryID          protowire.Number = 1
	entryName        protowire.Number = 2

	eventCategory    protowire.Number = 3
	eventArg         protowire.Number = 4
	eventType        protowire.Number = 9
	eventNameID      protowire.Number = 10
	eventTrack       protowire.Number = 11
	eventName        protowire.Number = 23
	eventValue       protowire.Number = 44 // double_counter_value
	eventFlow        protowire.Number = 47 // flow_ids
	eventCorrelation protowire.Number = 52

	argNameID protowire.Number = 1
	argInt    protowire.Number = 4
	argDouble protowire.Number = 5
	argString protowire.Number = 6

	trackID           protowire.Number = 1
	trackName         protowire.Number = 2
	trackProcess      protowire.Number = 3
	trackThread       protowire.Number = 4
	trackParent       protowire.Number = 5
	trackCounter      protowire.Number = 8
	trackRank         protowire.Number = 12 // sibling_order_rank
	trackProcessOrder protowire.Number = 19
	trackThreadOrder  protowire.Number = 20
	processID         protowire.Number = 1
	processName       protowire.Number = 6
	processLabel      protowire.Number = 8
	threadProcess     protowire.Number = 1
	threadID          protowire.Number = 2
	threadName        protowire.Number = 5
	counterUnit       protowire.Number = 3
	counterUnitName   protowire.Number = 6
	counterUnitBytes                   = 3 // UNIT_SIZE_BYTES
	orderExplicit                      = 1
	clockRealtime                      = 1
	clockBoottime                      = 6
	flagCleared                        = 1 // SEQ_INCREMENTAL_STATE_CLEARED
	flagNeeds                          = 2 // SEQ_NEEDS_INCREMENTAL_STATE
	sequence                           = 2 // 1 is that of the service of Perfetto
	typeBegin                          = 1
	typeEnd                            = 2
	typeInstant                        = 3
	typeCounter                        = 4
)

// encoder writes packets. After an error of the writer it writes nothing.
type encoder struct {
	to       *bufio.Writer
	interned [3]map[string]uint64 // IDs by category, name, and name of an argument
	fresh    []byte               // message InternedData of the next packet
	event    []byte               // memory for the parts of a packet
	part     []byte
	packet   []byte
	err      error
}

// begin writes the first packet: times are on the clock BOOTTIME, which this trace takes to be the time since 1970.
func (e *encoder) begin(to io.Writer, at int64) {
	e.to = bufio.NewWriterSize(to, 1<<16)
	for i := range e.interned {
		e.interned[i] = make(map[string]uint64)
	}
	var clocks []byte
	for _, id := range []uint64{clockBoottime, clockRealtime} {
		clocks = appendBytes(clocks, clocksClock, appendVarint(appendVarint(nil, clockID, id), clockTime, uint64(at)))
	}
	first := appendBytes(nil, packetClocks, clocks)
	first = appendVarint(appendVarint(first, packetTime, uint64(at)), packetSequence, sequence)
	e.write(appendVarint(appendVarint(first, packetFlags, flagCleared), packetFirst, 1))
}

// write writes a packet.
func (e *encoder) write(packet []byte) {
	e.part = appendBytes(e.part[:0], tracePacket, packet)
	if _, err := e.to.Write(e.part); err != nil && e.err == nil {
		e.err = fmt.Errorf("trace: write: %w", err)
	}
}

// close writes what is in memory.
func (e *encoder) close() error {
	if err := e.to.Flush(); err != nil && e.err == nil {
		e.err = fmt.Errorf("trace: write: %w", err)
	}
	return e.err
}

// send writes a packet at a time, with a field of the given number.
func (e *encoder) send(at int64, number protowire.Number, body []byte) {
	e.packet = appendVarint(e.packet[:0], packetTime, uint64(at))
	e.packet = appendBytes(e.packet, number, body)
	if len(e.fresh) > 0 {
		e.packet = appendBytes(e.packet, packetInterned, e.fresh)
		e.fresh = e.fresh[:0]
	}
	e.packet = appendVarint(e.packet, packetSequence, sequence)
	e.write(appendVarint(e.packet, packetFlags, flagNeeds))
}

// id returns the ID of a text of a kind, and defines it in the next packet if it is new. The number of such texts is
// bounded, as they are words of this package.
func (e *encoder) id(kind protowire.Number, text string) uint64 {
	known := e.interned[kind-internedCategory]
	id, ok := known[text]
	if !ok {
		id = uint64(len(known) + 1)
		known[text] = id
		e.fresh = appendBytes(e.fresh, kind, appendText(appendVarint(nil, entryID, id), entryName, text))
	}
	return id
}

// arg is an argument of an event. The value is a text, or a number.
type arg struct {
	name   string
	text   string
	number float64
	whole  int64
	is     protowire.Number // field of the value
}

// text returns an argument with a text.
func text(name, value string) arg { return arg{name: name, text: value, is: argString} }

// whole returns an argument with a whole number.
func whole(name string, value int64) arg { return arg{name: name, whole: value, is: argInt} }

// number returns an argument with a number, which is 0 if value is none.
func number(name string, value float64) arg {
	return arg{name: name, number: finite(value), is: argDouble}
}

// finite returns x, or 0 if it is no number.
func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// empty reports whether an argument says nothing.
func (a arg) empty() bool { return a.text == "" && a.number == 0 && a.whole == 0 }

// mark is what an event shows.
type mark struct {
	category string
	name     string
	number   int64         // shown after the name, if it is not 0
	linked   bool          // slices of all peers with this number belong together
	args     []arg         // empty ones are left out
	length   time.Duration // of a slice beside the steps
	once     bool          // several peers report it
	again    bool          // in another epoch or step it is another one
}

// mark writes the begin of a slice, or an instant, on a track.
func (e *encoder) mark(kind uint64, track uint64, at int64, m mark) {
	b := appendVarint(e.event[:0], eventType, kind)
	b = appendVarint(b, eventTrack, track)
	b = appendVarint(b, eventCategory, e.id(internedCategory, m.category))
	if m.number != 0 {
		b = appendText(b, eventName, fmt.Sprintf("%s %d", m.name, m.number))
	} else {
		b = appendVarint(b, eventNameID, e.id(internedName, m.name))
	}
	if m.linked {
		b = appendVarint(b, eventCorrelation, uint64(m.number))
	}
	e.event = e.args(b, m.args)
	e.send(at, packetEvent, e.event)
}

// args appends the arguments of an event.
func (e *encoder) args(b []byte, args []arg) []byte {
	for _, a := range args {
		if a.empty() {
			continue
		}
		e.part = appendVarint(e.part[:0], argNameID, e.id(internedArg, a.name))
		switch a.is {
		case argString:
			e.part = appendText(e.part, argString, a.text)
		case argInt:
			e.part = appendVarint(e.part, argInt, uint64(a.whole))
		default:
			e.part = appendDouble(e.part, argDouble, a.number)
		}
		b = appendBytes(b, eventArg, e.part)
	}
	return b
}

// end writes the end of the innermost slice of a track, with further arguments, and with the flows that it is a part of: an arrow leads
// from the first slice of a flow to the second.
func (e *encoder) end(track uint64, at int64, flows []uint64, args ...arg) {
	e.event = appendVarint(appendVarint(e.event[:0], eventType, typeEnd), eventTrack, track)
	for _, id := range flows {
		e.event = protowire.AppendFixed64(protowire.AppendTag(e.event, eventFlow, protowire.Fixed64Type), id)
	}
	e.event = e.args(e.event, args)
	e.send(at, packetEvent, e.event)
}

// count writes a value of a counter.
func (e *encoder) count(track uint64, at int64, value float64) {
	b := appendVarint(appendVarint(e.event[:0], eventType, typeCounter), eventTrack, track)
	e.event = appendDouble(b, eventValue, finite(value))
	e.send(at, packetEvent, e.event)
}

// appendVarint appends a field with a whole number.
func appendVarint(b []byte, n protowire.Number, x uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), x)
}

// appendDouble appends a field with a number.
func appendDouble(b []byte, n protowire.Number, x float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, n, protowire.Fixed64Type), math.Float64bits(x))
}

// appendBytes appends a field with a message.
func appendBytes(b []byte, n protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), message)
}

// maxText bounds a text of the log in the trace.
const maxText = 1 << 10

// appendText appends a field with a text, which is cut if it is long.
func appendText(b []byte, n protowire.Number, s string) []byte {
	s = strings.ToValidUTF8(s[:min(len(s), maxText)], "")
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}
