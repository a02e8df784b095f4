package elastic

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"

	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/gobtype"
	"github.com/elrun/elrun/internal/kernel"
)

// Vectors returns a State that consists of slices of numbers (of the types in collective.Number)
// and of the number of committed steps. Give each slice by its address:
//
//	state := elastic.Vectors(&step, &w)
//
// The State then reads the variable at each use, so the program may change the elements in place or
// replace the slice (w = next, or w, next = next, w). A slice that is given by value must be changed
// in place: the State keeps the memory that it was given. If that memory never changes, Group.Steps
// refuses peers that would copy it. The lengths never change; a slice that has another length after
// a turn is a mistake. Load writes the elements in place. The code that commits a step increments
// *step. Save writes the elements in memory order, without copying them first.
//
// A slice of another type, or a nil step, is reported as an error by Group.Steps. For bool, single
// numbers, structs and slices that grow use Gob.
func Vectors(step *int64, vectors ...any) State {
	s := &variables{step: step, kind: "vectors"}
	for i, given := range vectors {
		v, name := vectorOf(given)
		if name == "" {
			s.err = fmt.Errorf("vector %d has the type %T, want a slice of %s, or its address; for others use elastic.Gob", i, given, numberNames)
			return s
		}
		s.add(name, v)
	}
	return s.checked()
}

// BinaryValue is a value that marshals itself to bytes and unmarshals itself from them, for example
// gonum's mat.Dense and the generators of math/rand/v2.
type BinaryValue interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// Binary returns a State that consists of values that marshal themselves and of the number of
// committed steps. Equal values must give the same bytes at all peers. The code that commits a step
// increments *step. If a value has a method Reset, as *mat.Dense has, Load calls Reset before it
// unmarshals the value; such a value keeps its memory.
func Binary(step *int64, values ...BinaryValue) State {
	s := &variables{step: step, kind: "values"}
	for i, v := range values {
		if r := reflect.ValueOf(v); v == nil || r.Kind() == reflect.Pointer && r.IsNil() {
			s.err = fmt.Errorf("value %d is nil", i)
			return s
		}
		s.add(fmt.Sprintf("%T", v), marshaled{v})
	}
	return s.checked()
}

// Gob returns a State that consists of the variables to which values point and of the number of
// committed steps. Package encoding/gob encodes the variables. The code that commits a step
// increments *step. Load replaces the variables, so slices get other memory. All fields must be
// exported, because gob omits unexported fields without an error. Maps are refused because their
// order is random. Interfaces, functions and channels are refused because they cannot be copied.
// For a refused field, Group.Steps returns an error that names the field.
func Gob(step *int64, values ...any) State {
	s := &variables{step: step, kind: "gob"}
	for i, v := range values {
		r := reflect.ValueOf(v)
		if r.Kind() != reflect.Pointer || r.IsNil() {
			s.err = fmt.Errorf("value %d is a %T, want a pointer to a variable", i, v)
			return s
		}
		if err := gobtype.Check(r.Elem().Type(), gobtype.Compared); err != nil {
			s.err = err
			return s
		}
		s.add(r.Elem().Type().String(), gobbed{r.Elem()})
	}
	return s.checked()
}

// variables is a State of variables of the program, made by Vectors, Binary or Gob.
type variables struct {
	step  *int64
	kind  string // which constructor made it, for messages
	parts []part
	names []string // types of parts, for messages
	err   error    // why these variables cannot be a State; Group.Steps returns it
}

// part is one of the variables of a State. hash writes the same bytes for equal values.
type part interface {
	encode() ([]byte, error)
	decode(b []byte) error
	hash(w io.Writer) error
}

// add appends a part.
func (v *variables) add(name string, p part) {
	v.names, v.parts = append(v.names, name), append(v.parts, p)
}

// checked records the errors that all constructors have in common.
func (v *variables) checked() State {
	switch {
	case v.step == nil:
		v.err = errors.New("the pointer to the step is nil")
	case len(v.parts) == 0:
		v.err = errors.New("the state has no variable besides the step: add the variables that change with it")
	}
	return v
}

// String names the types, for comparison among peers.
func (v *variables) String() string {
	if v.err != nil {
		return "unusable"
	}
	return v.kind + " " + strings.Join(v.names, ", ")
}

// Step implements State.
func (v *variables) Step() int64 { return *v.step }

// Save implements State. It writes the step, then the length of each part and its bytes. The
// numbers are 8 bytes long, little-endian. A part that is no vector is encoded in memory before it
// is written.
func (v *variables) Save(w io.Writer) error {
	if v.err != nil {
		return v.err
	}
	if _, err := w.Write(binary.LittleEndian.AppendUint64(nil, uint64(*v.step))); err != nil {
		return err
	}
	for i, p := range v.parts {
		b, err := p.encode()
		if err != nil {
			return fmt.Errorf("%s: %w", v.names[i], err)
		}
		if _, err := w.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(b)))); err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// maxPart bounds one part of a loaded state, in bytes.
const maxPart = 1 << 40

// Load implements State. Vectors are read in place. After an error the variables are undefined,
// except for the step, which keeps its value; the caller must load another state before it goes on.
func (v *variables) Load(r io.Reader) error {
	if v.err != nil {
		return v.err
	}
	step, err := readWord(r)
	if err != nil {
		return err
	}
	if int64(step) < 0 {
		return fmt.Errorf("the state is of step %d, want 0 or more", int64(step))
	}
	for i, p := range v.parts {
		if err := v.load(r, p); err != nil {
			return fmt.Errorf("%s: %w", v.names[i], err)
		}
	}
	// Missing parts give an error above. Without this check, additional parts would be ignored.
	if n, _ := r.Read(make([]byte, 1)); n > 0 {
		return errors.New("the state has more parts than this peer's")
	}
	*v.step = int64(step)
	return nil
}

// load reads one part.
func (v *variables) load(r io.Reader, p part) error {
	n, err := readWord(r)
	if err != nil {
		return err
	}
	if into, ok := p.(vector); ok {
		b, err := into.encode()
		if err != nil {
			return err
		}
		if n != uint64(len(b)) {
			return fmt.Errorf("it has %d bytes, this peer's has %d", n, len(b))
		}
		_, err = io.ReadFull(r, b)
		return err
	}
	if n > maxPart {
		return fmt.Errorf("it has %d bytes, want at most %d", n, int64(maxPart))
	}
	// The buffer grows with the received bytes, so a wrong length cannot make this peer allocate
	// memory.
	b, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err == nil && uint64(len(b)) < n {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	return p.decode(b)
}

// readWord reads a little-endian word.
func readWord(r io.Reader) (uint64, error) {
	var b [8]byte
	_, err := io.ReadFull(r, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

// hash writes the bytes from which a fingerprint of the state is computed: only the bytes of the
// parts, without the step and the lengths of the parts. So a State that has only the parameters has
// the same hash as the bytes of the parameters.
func (v *variables) hash(w io.Writer) error {
	if v.err != nil {
		return v.err
	}
	for i, p := range v.parts {
		if err := p.hash(w); err != nil {
			return fmt.Errorf("%s: %w", v.names[i], err)
		}
	}
	return nil
}

// sameLengths returns an error if the length of a vector has changed.
func (v *variables) sameLengths() error {
	for i, p := range v.parts {
		if one, ok := p.(vector); ok && one.slice.Len() != one.length {
			return fmt.Errorf("%s: %w", v.names[i], one.lengthError())
		}
	}
	return nil
}

// byValue returns the vectors that were given by value.
func (v *variables) byValue() *variables {
	out := &variables{step: v.step, kind: v.kind}
	for i, p := range v.parts {
		if one, ok := p.(vector); ok && !one.slice.CanSet() {
			out.add(v.names[i], p)
		}
	}
	return out
}

// hashState writes the bytes from which a fingerprint of any State is computed.
func hashState(w io.Writer, s State) error {
	if v, ok := s.(*variables); ok {
		return v.hash(w)
	}
	return s.Save(w)
}

// stateError returns why s cannot be used as a State, or nil.
func stateError(s State) error {
	if s == nil {
		return errors.New("the state is nil: give one, as elastic.Vectors(&step, &weights) makes")
	}
	if r := reflect.ValueOf(s); r.Kind() == reflect.Pointer && r.IsNil() {
		return fmt.Errorf("the state is a nil %T", s)
	}
	if v, ok := s.(*variables); ok && cmp.Or(v.err, v.sameLengths()) != nil {
		return fmt.Errorf("the state: %w", cmp.Or(v.err, v.sameLengths()))
	}
	return nil
}

// vector is a slice of numbers. A slice that was given by its address is settable: it is then the
// variable of the program, which may hold another slice at each use.
type vector struct {
	slice  reflect.Value
	length int
}

// vectorOf returns the vector of a slice of numbers, or of the variable to which a pointer points,
// and a text with the type and the length of the slice. For any other value the text is empty.
func vectorOf(given any) (v vector, name string) {
	r := reflect.ValueOf(given)
	if r.Kind() == reflect.Pointer {
		r = r.Elem()
	}
	if r.Kind() != reflect.Slice {
		return vector{}, ""
	}
	_, name = numbers(r.Interface())
	return vector{r, r.Len()}, name
}

// lengthError describes that the length of the slice has changed.
func (v vector) lengthError() error {
	return fmt.Errorf("its slice has %d elements now: keep the length, or use elastic.Gob", v.slice.Len())
}

// encode returns the bytes of the slice, which share its memory.
func (v vector) encode() ([]byte, error) {
	if v.slice.Len() != v.length {
		return nil, v.lengthError()
	}
	b, _ := numbers(v.slice.Interface())
	return b, nil
}

// decode copies b, which has the length of the slice, into the slice.
func (v vector) decode(b []byte) error {
	to, err := v.encode()
	copy(to, b)
	return err
}

// hash writes the bytes.
func (v vector) hash(w io.Writer) error {
	b, err := v.encode()
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// numberNames lists the types of the elements of vectors.
const numberNames = "int, int8, int32, int64, uint8, uint32, uint64, float32, float64, Float16 or BFloat16"

// numbers returns the bytes of a slice of numbers, never nil, and a text with the type and the
// length of the slice. For any other value the bytes are nil.
func numbers(v any) (b []byte, name string) {
	switch v := v.(type) {
	case []int:
		return view(v)
	case []int8:
		return view(v)
	case []int32:
		return view(v)
	case []int64:
		return view(v)
	case []uint8:
		return view(v)
	case []uint32:
		return view(v)
	case []uint64:
		return view(v)
	case []float32:
		return view(v)
	case []float64:
		return view(v)
	case []dtype.Float16:
		return view(v)
	case []dtype.BFloat16:
		return view(v)
	}
	return nil, ""
}

// view returns the bytes of v, which share its memory, and a text with its type and length.
func view[T dtype.Number](v []T) (b []byte, name string) {
	if b = kernel.Bytes(v); b == nil {
		b = []byte{}
	}
	return b, fmt.Sprintf("%v[%d]", dtype.TypeOf[T](), len(v))
}

// marshaled is a value that marshals itself.
type marshaled struct{ v BinaryValue }

// encode returns the bytes that the value marshals itself to.
func (m marshaled) encode() ([]byte, error) { return m.v.MarshalBinary() }

// decode resets the value, if it has a method Reset, and unmarshals b into it.
func (m marshaled) decode(b []byte) error {
	if r, ok := m.v.(interface{ Reset() }); ok {
		r.Reset()
	}
	return m.v.UnmarshalBinary(b)
}

// hash writes the bytes that the value marshals itself to.
func (m marshaled) hash(w io.Writer) error {
	b, err := m.v.MarshalBinary()
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// gobbed is a variable that gob encodes.
type gobbed struct{ v reflect.Value }

// encode returns the output of a new gob encoder, which includes the descriptions of the types.
func (g gobbed) encode() ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).EncodeValue(g.v)
	return b.Bytes(), err
}

// decode replaces the variable. It decodes into a fresh value, because a gob decoder does not
// change a field that is zero at the sender.
func (g gobbed) decode(b []byte) error {
	fresh := reflect.New(g.v.Type())
	if err := gob.NewDecoder(bytes.NewReader(b)).DecodeValue(fresh); err != nil {
		return err
	}
	g.v.Set(fresh.Elem())
	return nil
}

// hash writes a canonical encoding, because the output of gob is not canonical.
func (g gobbed) hash(w io.Writer) error { return hashValue(w, g.v) }

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
