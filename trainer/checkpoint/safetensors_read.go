package checkpoint

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/elrun/elrun/internal/kernel"
)

// ReadSafetensors reads a safetensors file of float32 tensors, and returns them in the order of
// their data. Other element types are refused. Errors wrap ErrDamaged if the file violates the
// format. ReadSafetensors refuses all files that the reference implementation refuses. It also
// refuses all duplicate names, some of which the reference implementation accepts.
func ReadSafetensors(path string) (tensors []Tensor, metadata map[string]string, err error) {
	file, size, err := openRegular(path)
	if err != nil {
		return nil, nil, fmt.Errorf("checkpoint: read %s: %w", path, err)
	}
	defer file.Close()
	tensors, metadata, err = decodeTensors(file, size)
	if err != nil {
		return nil, nil, fmt.Errorf("checkpoint: read %s: %w", path, err)
	}
	return tensors, metadata, nil
}

// decodeTensors reads a safetensors file of size bytes.
func decodeTensors(r io.ReaderAt, size int64) ([]Tensor, map[string]string, error) {
	l, err := readLayout(r, size)
	if err != nil {
		return nil, nil, err
	}
	// The lengths are known to fit the file, so it is safe to allocate them.
	tensors := make([]Tensor, len(l.entries))
	data := io.NewSectionReader(r, l.first(), size-l.first())
	for i, e := range l.entries {
		if e.info.DType != "F32" {
			return nil, nil, fmt.Errorf("tensor %q: elements of type %q, want F32", e.name, e.info.DType)
		}
		t := Tensor{Name: e.name, Shape: e.info.Shape, Data: make([]float32, (e.info.Offsets[1]-e.info.Offsets[0])/4)}
		if _, err := io.ReadFull(data, kernel.Bytes(t.Data)); err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", e.name, err)
		}
		tensors[i] = t
	}
	return tensors, l.metadata, nil
}

// layout is the content of a safetensors file except the data.
type layout struct {
	// header is the text of the header, as the file has it.
	header   []byte
	metadata map[string]string
	// entries are in the order of their data, which they cover without holes or overlap.
	entries []entry
}

// first returns the position of the data in the file.
func (l layout) first() int64 { return 8 + int64(len(l.header)) }

// readLayout reads and checks the header of a file of size bytes.
func readLayout(r io.ReaderAt, size int64) (l layout, err error) {
	if l.header, err = readTensorHeader(r, size); err != nil {
		return l, err
	}
	fields, err := fieldsOf(l.header)
	if err != nil {
		return l, fmt.Errorf("%w: header: %w", ErrDamaged, err)
	}
	for _, f := range fields {
		if f.name == metadataKey {
			l.metadata, err = metadataOf(f.value)
		} else {
			e := entry{name: f.name}
			e.info, err = tensorInfoOf(f.value)
			l.entries = append(l.entries, e)
		}
		if err != nil {
			return l, fmt.Errorf("%w: header: %q: %w", ErrDamaged, f.name, err)
		}
	}
	return l, l.check(size - l.first())
}

// readTensorHeader returns the header of a file of size bytes. It checks the text of the header
// with checkText. It compares the length of the header with the length of the file before it
// allocates memory.
func readTensorHeader(r io.ReaderAt, size int64) ([]byte, error) {
	if size < 8 {
		return nil, fmt.Errorf("%w: %d bytes are too few for safetensors", ErrDamaged, size)
	}
	prefix := make([]byte, 8)
	if _, err := r.ReadAt(prefix, 0); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint64(prefix)
	if length > maxTensorHeader || length > uint64(size-8) {
		return nil, fmt.Errorf("%w: a file of %d bytes claims a header of %d, want at most %d", ErrDamaged, size, length, maxTensorHeader)
	}
	header := make([]byte, length)
	if _, err := r.ReadAt(header, 8); err != nil {
		return nil, err
	}
	if err := checkText(header); err != nil {
		return nil, fmt.Errorf("%w: the header %w", ErrDamaged, err)
	}
	return header, nil
}

// entry is a tensor's name and description in the header.
type entry struct {
	name string
	info tensorInfo
}

// check sorts the entries by their position, and returns an error unless they cover the data of
// size bytes without gaps.
func (l layout) check(size int64) error {
	// By offset; an empty tensor comes before the tensor that begins at the same offset.
	slices.SortStableFunc(l.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.info.Offsets[0], b.info.Offsets[0]), cmp.Compare(a.info.Offsets[1], b.info.Offsets[1]))
	})
	end := int64(0)
	for _, e := range l.entries {
		if err := e.check(end); err != nil {
			return fmt.Errorf("tensor %q: %w", e.name, err)
		}
		end = e.info.Offsets[1]
	}
	if end != size {
		return fmt.Errorf("%w: %d bytes of data, but the header describes %d", ErrDamaged, size, end)
	}
	return nil
}

// check returns an error unless the entry is a tensor of numbers whose data begins at first and has
// the length of its shape.
func (e entry) check(first int64) error {
	size, ok := sizes()[e.info.DType]
	if !ok {
		return fmt.Errorf("elements of type %q, want F32, F64, F16, BF16, or integers except I16 and U16", e.info.DType)
	}
	n, ok := elements(e.info.Shape)
	if !ok || e.info.Offsets[0] != first || e.info.Offsets[1] != first+int64(size)*n || e.info.Offsets[1] < first {
		return fmt.Errorf("%w: the offsets %v do not fit %s of the shape %v from byte %d on", ErrDamaged, e.info.Offsets, e.info.DType, e.info.Shape, first)
	}
	return nil
}
