package elastic

import (
	"encoding"
	"encoding/binary"
	"encoding/gob"
	"fmt"
	"io"
	"math"
	"reflect"

	"github.com/elrun/elrun/internal/gobtype"
)

// hashValue writes a canonical encoding of a value whose type gobtype.Check accepts: equal values give
// equal bytes. Gob's own output is not canonical: it depends on the types that the process has
// encoded before.
func hashValue(w io.Writer, v reflect.Value) error {
	if gobtype.Marshals(v.Type()) {
		return hashMarshaled(w, v)
	}
	// Slices of numbers are hashed as bytes. One call per element would be slow.
	if b, _ := numbers(v.Interface()); b != nil {
		return hashBytes(w, b)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return hashWord(w, 0)
		}
		// The word 1 distinguishes a pointer to a zero value from nil.
		return hashAfter(w, 1, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if err := hashValue(w, v.Field(i)); err != nil {
				return err
			}
		}
		return nil
	case reflect.Slice, reflect.Array:
		// Without the length the hash would not change if an element moved from one slice to the
		// next.
		if err := hashWord(w, uint64(v.Len())); err != nil {
			return err
		}
		for i := range v.Len() {
			if err := hashValue(w, v.Index(i)); err != nil {
				return err
			}
		}
		return nil
	case reflect.String:
		return hashBytes(w, []byte(v.String()))
	}
	return hashScalar(w, v)
}

// hashScalar writes a number or a boolean as one word.
func hashScalar(w io.Writer, v reflect.Value) error {
	switch {
	case v.Kind() == reflect.Bool && v.Bool():
		return hashWord(w, 1)
	case v.Kind() == reflect.Bool:
		return hashWord(w, 0)
	case v.CanInt():
		return hashWord(w, uint64(v.Int()))
	case v.CanUint():
		return hashWord(w, v.Uint())
	// A float is hashed by its bits: -0 differs from 0, and a NaN equals itself.
	case v.CanFloat():
		return hashWord(w, math.Float64bits(v.Float()))
	case v.CanComplex():
		if err := hashWord(w, math.Float64bits(real(v.Complex()))); err != nil {
			return err
		}
		return hashWord(w, math.Float64bits(imag(v.Complex())))
	}
	return fmt.Errorf("a %v", v.Type())
}

// hashMarshaled writes the encoding that a value's own method returns. It returns an error if the
// method needs a pointer and the value is not addressable.
func hashMarshaled(w io.Writer, v reflect.Value) error {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return hashWord(w, 0)
	}
	values := []reflect.Value{v}
	// GobEncode often has a pointer receiver.
	if v.CanAddr() {
		values = append(values, v.Addr())
	}
	for _, v := range values {
		switch m := v.Interface().(type) {
		case gob.GobEncoder:
			b, err := m.GobEncode()
			if err != nil {
				return err
			}
			return hashBytes(w, b)
		case encoding.BinaryMarshaler:
			b, err := m.MarshalBinary()
			if err != nil {
				return err
			}
			return hashBytes(w, b)
		}
	}
	return fmt.Errorf("a %v that is not addressable", v.Type())
}

// hashAfter writes a word and then a value.
func hashAfter(w io.Writer, word uint64, v reflect.Value) error {
	if err := hashWord(w, word); err != nil {
		return err
	}
	return hashValue(w, v)
}

// hashWord writes a word in little-endian order.
func hashWord(w io.Writer, word uint64) error {
	_, err := w.Write(binary.LittleEndian.AppendUint64(nil, word))
	return err
}

// hashBytes writes a length and the bytes.
func hashBytes(w io.Writer, b []byte) error {
	if err := hashWord(w, uint64(len(b))); err != nil {
		return err
	}
	_, err := w.Write(b)
	return err
}
