package perfetto

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// message is a message of protobuf: the values of its fields in their order.
type message struct {
	fields map[protowire.Number][]value
	order  []protowire.Number
}

// value is the value of a field.
type value struct {
	is     protowire.Type
	number uint64
	bytes  []byte
}

// parse parses a message whose fields are listed, each with the type of its values. An error names the message.
func parse(name string, b []byte, known map[protowire.Number]protowire.Type) (message, error) {
	m := message{fields: make(map[protowire.Number][]value)}
	for len(b) > 0 {
		n, is, size := protowire.ConsumeTag(b)
		if size < 0 {
			return m, fmt.Errorf("%s: %w", name, protowire.ParseError(size))
		}
		b = b[size:]
		if want, ok := known[n]; !ok || want != is {
			return m, fmt.Errorf("%s: field %d of wire type %d is not in the format", name, n, is)
		}
		v := value{is: is}
		switch is {
		case protowire.VarintType:
			v.number, size = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			v.number, size = protowire.ConsumeFixed64(b)
		default:
			v.bytes, size = protowire.ConsumeBytes(b)
		}
		if size < 0 {
			return m, fmt.Errorf("%s: field %d: %w", name, n, protowire.ParseError(size))
		}
		b = b[size:]
		m.fields[n] = append(m.fields[n], v)
		m.order = append(m.order, n)
	}
	return m, nil
}

// once returns an error if a field other than the repeated ones occurs twice.
func (m message) once(name string, repeated ...protowire.Number) error {
	for n, list := range m.fields {
		if len(list) > 1 && !slices.Contains(repeated, n) {
			return fmt.Errorf("%s: field %d occurs %d times", name, n, len(list))
		}
	}
	return nil
}

// has reports whether a field is present.
func (m message) has(n protowire.Number) bool { return len(m.fields[n]) > 0 }

// uint returns a whole number; 0 if the field is absent.
func (m message) uint(n protowire.Number) uint64 {
	if !m.has(n) {
		return 0
	}
	return m.fields[n][0].number
}

// double returns a number; 0 if the field is absent.
func (m message) double(n protowire.Number) float64 { return math.Float64frombits(m.uint(n)) }

// text returns a text; an error if it is no UTF-8.
func (m message) text(n protowire.Number) (string, error) {
	if !m.has(n) {
		return "", nil
	}
	b := m.fields[n][0].bytes
	if !utf8.Valid(b) {
		return "", fmt.Errorf("field %d: %q is not UTF-8", n, b)
	}
	return string(b), nil
}

// body returns the bytes of a message in a field.
func (m message) body(n protowire.Number) []byte {
	if !m.has(n) {
		return nil
	}
	return m.fields[n][0].bytes
}

// Types of fields.
const (
	isNumber = protowire.VarintType
	isDouble = protowire.Fixed64Type
	isBytes  = protowire.BytesType
)

// fields is a list of the fields of a message.
type fields = map[protowire.Number]protowire.Type

// packetFields returns the fields of a packet, as far as this project writes them. So do the following functions for other messages.
func packetFields() fields {
	return fields{6: isBytes, 8: isNumber, 10: isNumber, 11: isBytes, 12: isBytes, 13: isNumber, 60: isBytes, 87: isNumber}
}

// eventFields returns the fields of an event.
func eventFields() fields {
	return fields{3: isNumber, 4: isBytes, 9: isNumber, 10: isNumber, 11: isNumber, 23: isBytes, 44: isDouble, 47: isDouble, 52: isNumber}
}

// argFields returns the fields of an argument.
func argFields() fields { return fields{1: isNumber, 4: isNumber, 5: isDouble, 6: isBytes} }

// trackFields returns the fields of a descriptor.
func trackFields() fields {
	return fields{1: isNumber, 2: isBytes, 3: isBytes, 4: isBytes, 5: isNumber, 8: isBytes, 12: isNumber, 19: isNumber, 20: isNumber}
}
