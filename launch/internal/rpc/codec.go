package rpc

import (
	"encoding"
	"fmt"
	"reflect"

	"github.com/fxamacker/cbor/v2"
)

// maxNested bounds the nesting depth of values. A deeper payload would make the recursive decoder
// use much stack for few bytes.
const maxNested = 64

// Codec encodes values as payloads and decodes payloads. It is safe for concurrent use.
type Codec struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

// NewCodec returns a codec. A frame bounds the size of a payload, and lengths in a payload are
// checked against the size of the payload before memory is allocated.
func NewCodec() (Codec, error) {
	// Times keep their nanoseconds and their zone, as text.
	enc, err := cbor.EncOptions{Time: cbor.TimeRFC3339Nano}.EncMode()
	if err != nil {
		return Codec{}, err
	}
	// Duplicate keys of a map are an error: otherwise the result would depend on the decoder.
	dec, err := cbor.DecOptions{MaxNestedLevels: maxNested, MaxArrayElements: MaxPayload, MaxMapPairs: MaxPayload, DupMapKey: cbor.DupMapKeyEnforcedAPF}.DecMode()
	return Codec{enc, dec}, err
}

// Marshal encodes a value as a payload, which the caller owns.
func (c Codec) Marshal(v any) ([]byte, error) { return c.enc.Marshal(v) }

// Unmarshal decodes a payload into the value that v points to. The payload comes from another
// process, so the decoder bounds its nesting and lengths.
func (c Codec) Unmarshal(payload []byte, v any) error { return c.dec.Unmarshal(payload, v) }

// CheckType returns an error for a type whose values would not survive a call unchanged: channels,
// functions, complex numbers, and structs with unexported fields only.
func CheckType(t reflect.Type) error { return checkType(t, map[reflect.Type]bool{}) }

// checkType is CheckType with the set of types that are being checked, which ends recursion.
func checkType(t reflect.Type, seen map[reflect.Type]bool) error {
	if seen[t] || encodesItself(t) {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return fmt.Errorf("a %v cannot be sent", t)
	case reflect.Interface:
		return fmt.Errorf("a %v cannot be sent, as its type would be lost: use a struct", t)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return checkType(t.Elem(), seen)
	case reflect.Map:
		if err := checkType(t.Key(), seen); err != nil {
			return err
		}
		return checkType(t.Elem(), seen)
	// A struct whose fields are all unexported would arrive as a zero value, without an error.
	case reflect.Struct:
		return checkStruct(t, seen)
	}
	return nil
}

// checkStruct is checkType for a struct type.
func checkStruct(t reflect.Type, seen map[reflect.Type]bool) error {
	sent := 0
	for f := range t.Fields() {
		if !f.IsExported() {
			continue
		}
		sent++
		if err := checkType(f.Type, seen); err != nil {
			return fmt.Errorf("field %s of %v: %w", f.Name, t, err)
		}
	}
	if sent == 0 && t.NumField() > 0 {
		return fmt.Errorf("%v cannot be sent: it has no exported field; export the fields to send", t)
	}
	return nil
}

// encodesItself reports whether a type has its own binary encoding, as time.Time has.
func encodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[cbor.Unmarshaler]()) && p.Implements(reflect.TypeFor[cbor.Marshaler]()) ||
		p.Implements(reflect.TypeFor[encoding.BinaryUnmarshaler]()) && p.Implements(reflect.TypeFor[encoding.BinaryMarshaler]())
}
