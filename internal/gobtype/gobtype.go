// Package gobtype finds the types whose values encoding/gob would not copy completely. Gob leaves
// out unexported fields, functions and channels without an error.
package gobtype

import (
	"encoding"
	"encoding/gob"
	"fmt"
	"reflect"
	"slices"
)

// Rules are what types Check accepts besides those that every copy needs.
type Rules int

const (
	// Copied is for values that are only copied.
	Copied Rules = iota
	// Compared is for values whose copies are also compared: maps are refused, because their order
	// is random, and interfaces, whose values are unknown before the encoding.
	Compared
)

// Check returns nil if gob can encode values of type t completely, and otherwise an error that names
// the part that it cannot encode.
func Check(t reflect.Type, r Rules) error { return r.check(t, t.String(), nil) }

// check is Check for the part of a value named by path. The argument within lists the enclosing
// types, so that the recursion ends at a recursive type.
func (r Rules) check(t reflect.Type, path string, within []reflect.Type) error {
	// The fields of a type with its own encoding are not checked: gob calls the type's method for
	// the whole value.
	if slices.Contains(within, t) || Marshals(t) {
		return nil
	}
	// The list is copied, because the checks of several fields extend it.
	within = append(slices.Clone(within), t)
	refused := func(why string) error { return fmt.Errorf("gob: %s is a %v: %s", path, t, why) }
	switch t.Kind() {
	case reflect.Map:
		if r == Compared {
			return refused("the order of a map is random, so that equal states differ; keep a sorted slice")
		}
		if err := r.check(t.Key(), path, within); err != nil {
			return err
		}
		return r.check(t.Elem(), path, within)
	case reflect.Interface:
		if r == Compared {
			return refused("it cannot be copied to other peers")
		}
	case reflect.Func, reflect.Chan, reflect.UnsafePointer, reflect.Uintptr:
		return refused("it cannot be copied to other peers")
	// An element has no name of its own, so path does not change.
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return r.check(t.Elem(), path, within)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() {
				return fmt.Errorf("gob: %s.%s is not exported, so that gob would leave it out; export it, or give the type a method MarshalBinary", path, f.Name)
			}
			if err := r.check(f.Type, path+"."+f.Name, within); err != nil {
				return err
			}
		}
	}
	return nil
}

// Marshals reports whether values of a type, or pointers to them, implement gob.GobEncoder or
// encoding.BinaryMarshaler.
func Marshals(t reflect.Type) bool {
	for _, marshaler := range []reflect.Type{reflect.TypeFor[gob.GobEncoder](), reflect.TypeFor[encoding.BinaryMarshaler]()} {
		if t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler) {
			return true
		}
	}
	return false
}
