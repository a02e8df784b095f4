package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"unicode/utf8"

	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// The format of safetensors (https://github.com/huggingface/safetensors, "Format"):
//
//	uint64    length of the header, little-endian
//	          the header: a JSON object that begins with "{" and may end in spaces;
//	          for each tensor its dtype, shape and data_offsets, [first, end) in the data,
//	          without holes; "__metadata__" may map strings to strings
//	          the data, row-major, little-endian
const (
	metadataKey = "__metadata__"
	// maxTensorHeader is the limit of a header in the reference implementation, in bytes.
	maxTensorHeader = 100_000_000
	// dataAlignment is the alignment of the data in the file, in bytes. It is a multiple of each
	// element size, for readers that map files and use the data in place.
	dataAlignment = 8
)

// Tensor is a named vector of numbers with a shape, row-major.
type Tensor struct {
	Name  string
	Shape []int // the product is the number of elements; empty for a scalar
	Data  []float32
	// Values takes the place of Data for other elements, if it is not nil: a slice of a type of
	// dtype.Number, or a pointer to a variable with such a slice.
	Values any
}

// tensorInfo is the entry of one tensor in a header.
type tensorInfo struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// WriteSafetensors writes tensors, and metadata, which may be nil, to a file in the format of
// safetensors. Names must be UTF-8 and unique. The file appears at path only when it is complete
// and on the disk; it then replaces an older file. Only the user may read it, even if the older
// file had another mode.
func WriteSafetensors(path string, tensors []Tensor, metadata map[string]string) error {
	err := replace(path, func(w io.Writer) error { return encodeTensors(w, tensors, metadata) })
	if err != nil {
		return fmt.Errorf("checkpoint: write %s: %w", path, err)
	}
	return nil
}

// encodeTensors writes a complete safetensors file to w.
func encodeTensors(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	header, err := tensorHeader(tensors, metadata)
	if err != nil {
		return err
	}
	return writeTensors(w, header, tensors)
}

// writeTensors writes a file with the given header, the result of tensorHeader for the same
// tensors.
func writeTensors(w io.Writer, header []byte, tensors []Tensor) error {
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	if _, err := w.Write(append(length, header...)); err != nil {
		return err
	}
	for _, t := range tensors {
		b, _, _ := t.elements() // tensorHeader has checked the type
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// object builds a JSON object whose names stay in the order of add. A Go map would be encoded in
// alphabetical order.
type object struct {
	text bytes.Buffer
	seen map[string]bool
}

// add appends a name and its value. A name that is not unique or not UTF-8 is an error.
func (o *object) add(name string, value any) error {
	if o.seen[name] || !utf8.ValidString(name) {
		return fmt.Errorf("name %q: want valid UTF-8, and each name once", name)
	}
	o.seen[name] = true
	key, err := json.Marshal(name)
	if err != nil {
		return err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	separator := ","
	if o.text.Len() == 0 {
		separator = "{"
	}
	o.text.WriteString(separator)
	o.text.Write(key)
	o.text.WriteByte(':')
	o.text.Write(text)
	return nil
}

// tensorHeader returns the header, padded with spaces to align the data. It lists the tensors in
// the order of their data, which is the order of the argument.
func tensorHeader(tensors []Tensor, metadata map[string]string) ([]byte, error) {
	if metadata == nil {
		metadata = map[string]string{}
	}
	header := &object{seen: make(map[string]bool)}
	if err := header.add(metadataKey, metadata); err != nil {
		return nil, err
	}
	offset := int64(0)
	for _, t := range tensors {
		info, err := infoOf(t, offset)
		if err == nil {
			err = header.add(t.Name, info)
		}
		if err != nil {
			return nil, err
		}
		offset = info.Offsets[1]
	}
	header.text.WriteByte('}')
	for (8+header.text.Len())%dataAlignment != 0 {
		header.text.WriteByte(' ')
	}
	if n := header.text.Len(); n > maxTensorHeader {
		return nil, fmt.Errorf("header of %d bytes, want at most %d: shorten the names of the tensors", n, maxTensorHeader)
	}
	return header.text.Bytes(), nil
}

// infoOf returns the header entry of a tensor whose data begins at offset.
func infoOf(t Tensor, offset int64) (tensorInfo, error) {
	b, kind, err := t.elements()
	if err != nil {
		return tensorInfo{}, err
	}
	info := tensorInfo{kind, t.Shape, [2]int64{offset, offset + int64(len(b))}}
	if info.Shape == nil {
		info.Shape = []int{} // null would not be a valid shape
	}
	count := len(b) / sizes()[kind]
	if n, ok := elements(info.Shape); !ok || n != int64(count) {
		return info, fmt.Errorf("tensor %q: %d elements do not match the shape %v", t.Name, count, t.Shape)
	}
	return info, nil
}

// raw are the elements of a tensor as bytes, of a type of safetensors.
type raw struct {
	kind string
	b    []byte
}

// sizes returns the bytes of an element, by the names that safetensors has for the types.
func sizes() map[string]int {
	return map[string]int{"F32": 4, "F64": 8, "F16": 2, "BF16": 2, "I8": 1, "I32": 4, "I64": 8, "U8": 1, "U32": 4, "U64": 8}
}

// elements returns the memory of the tensor's elements, and the name of their type in safetensors.
func (t Tensor) elements() (b []byte, kind string, err error) {
	values := t.Values
	if r := reflect.ValueOf(values); r.Kind() == reflect.Pointer && !r.IsNil() {
		values = r.Elem().Interface()
	}
	switch v := values.(type) {
	case nil:
		return kernel.Bytes(t.Data), "F32", nil
	case raw:
		return v.b, v.kind, nil
	case []float32:
		return kernel.Bytes(v), "F32", nil
	case []float64:
		return kernel.Bytes(v), "F64", nil
	case []dtype.Float16:
		return kernel.Bytes(v), "F16", nil
	case []dtype.BFloat16:
		return kernel.Bytes(v), "BF16", nil
	case []int8:
		return kernel.Bytes(v), "I8", nil
	case []int32:
		return kernel.Bytes(v), "I32", nil
	case []int64:
		return kernel.Bytes(v), "I64", nil
	case []int:
		return kernel.Bytes(v), fmt.Sprint("I", strconv.IntSize), nil
	case []uint8:
		return v, "U8", nil
	case []uint32:
		return kernel.Bytes(v), "U32", nil
	case []uint64:
		return kernel.Bytes(v), "U64", nil
	}
	return nil, "", fmt.Errorf("tensor %q is a %T: want a slice of int, int8, int32, int64, uint8, uint32, uint64, float32, float64, Float16 or BFloat16", t.Name, t.Values)
}

// elements returns the product of the dimensions; false if one is negative or the product exceeds
// maxElements.
func elements(shape []int) (int64, bool) {
	n := int64(1)
	for _, side := range shape {
		if side < 0 || side > 0 && n > maxElements/int64(side) {
			return 0, false
		}
		n *= int64(side)
	}
	return n, true
}

// maxElements limits the elements of a tensor, so that their bytes fit an int64.
const maxElements = 1 << 59
