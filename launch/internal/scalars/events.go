package scalars

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// An event file of TensorBoard is a sequence of records (tensorflow/core/lib/io/record_writer.h), each with a
// message Event (tensorflow/core/util/event.proto):
//
//	uint64 length, uint32 masked CRC-32C of the length, data, uint32 masked CRC-32C of the data
//
// All numbers are little-endian.

// Numbers of the fields of the messages Event, Summary and Summary.Value.
const (
	eventTime    protowire.Number = 1 // double, seconds since 1970
	eventStep    protowire.Number = 2
	eventVersion protowire.Number = 3
	eventSummary protowire.Number = 5
	summaryValue protowire.Number = 1
	valueTag     protowire.Number = 1
	valueSimple  protowire.Number = 2 // float
)

// eventFile writes an event file.
type eventFile struct{ to *bufio.Writer }

// begin begins an event file with the record of its version.
func (e *eventFile) begin(to io.Writer, at time.Time) error {
	e.to = bufio.NewWriter(to)
	b := appendTime(nil, at)
	b = protowire.AppendTag(b, eventVersion, protowire.BytesType)
	b = protowire.AppendString(b, "brain.Event:2")
	return e.record(b)
}

// scalar writes one figure of a step.
func (e *eventFile) scalar(at time.Time, step int64, name string, x float64) error {
	var value []byte
	value = protowire.AppendTag(value, valueTag, protowire.BytesType)
	value = protowire.AppendString(value, name)
	value = protowire.AppendTag(value, valueSimple, protowire.Fixed32Type)
	value = protowire.AppendFixed32(value, math.Float32bits(float32(x)))
	var summary []byte
	summary = protowire.AppendTag(summary, summaryValue, protowire.BytesType)
	summary = protowire.AppendBytes(summary, value)
	b := appendTime(nil, at)
	b = protowire.AppendTag(b, eventStep, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(step))
	b = protowire.AppendTag(b, eventSummary, protowire.BytesType)
	b = protowire.AppendBytes(b, summary)
	return e.record(b)
}

// appendTime appends the time of an event.
func appendTime(e []byte, at time.Time) []byte {
	e = protowire.AppendTag(e, eventTime, protowire.Fixed64Type)
	return protowire.AppendFixed64(e, math.Float64bits(float64(at.UnixNano())/1e9))
}

// record writes a record.
func (e *eventFile) record(data []byte) error {
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	head = binary.LittleEndian.AppendUint32(head, masked(head))
	tail := binary.LittleEndian.AppendUint32(nil, masked(data))
	for _, part := range [][]byte{head, data, tail} {
		if _, err := e.to.Write(part); err != nil {
			return fmt.Errorf("write a record: %w", err)
		}
	}
	return nil
}

// masked returns the masked CRC-32C of data, as the format has it.
func masked(data []byte) uint32 {
	crc := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (crc>>15 | crc<<17) + 0xa282ead8
}
