package rpc

import (
	"encoding"
	"fmt"
	"reflect"

	"github.com/fxamacker/cbor/v2"
)

// maxNested bounds how deep values are nested.
const maxNested = 64

// Codec makes payloads of values and values of payloads. It may be used by several goroutines.
type Codec struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

// NewCodec returns a codec. A payload is bounded by its frame, and lengths in it are checked
// against it before memory is taken.
func NewCodec() (Codec, error) {
	enc, err := cbor.EncOptions{Time: cbor.TimeRFC3339Nano}.EncMode()
	if err != nil {
		return Codec{}, err
	}
	dec, err := cbor.DecOptions{MaxNestedLevels: maxNested, MaxArrayElements: MaxPayload, MaxMapPairs: MaxPayload, DupMapKey: cbor.DupMapKeyEnforcedAPF}.DecMode()
	return Codec{enc, dec}, err
}

// Marshal returns a value as a payload.
func (c Codec) Marshal(v any) ([]byte, error) { return c.enc.Marshal(v) }

// Unmarshal reads a payload into what v points to.
func (c Codec) Unmarshal(payload []byte, v any) error { return c.dec.Unmarshal(payload, v) }

// CheckType reports why values of a type would not come through a call as they are: channels,
// functions and complex numbers do not, nor do structs that have nothing but unexported fields.
func CheckType(t reflect.Type) error { return checkType(t, map[reflect.Type]bool{}) }

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
	case reflect.Struct:
		return checkStruct(t, seen)
	}
	return nil
}

// checkStruct is checkType for a struct.
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
		return fmt.Errorf("%v cannot be sent: it has no exported field", t)
	}
	return nil
}

// encodesItself reports whether a type has its own binary form, as time.Time has.
func encodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[cbor.Unmarshaler]()) && p.Implements(reflect.TypeFor[cbor.Marshaler]()) ||
		p.Implements(reflect.TypeFor[encoding.BinaryUnmarshaler]()) && p.Implements(reflect.TypeFor[encoding.BinaryMarshaler]())
}
