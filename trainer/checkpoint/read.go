package checkpoint

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// Checkpoint is an open checkpoint. Its checksum was correct when it was opened.
type Checkpoint struct {
	Header
	Path string

	file *os.File
	// size is the size of the file in bytes.
	size   int64
	layout layout
	// sum is the XXH64 hash of the file with zeros in place of its own digits.
	sum uint64
}

// Open opens a checkpoint and verifies all of it, which reads the file once. Errors wrap
// ErrDamaged, ErrVersion or the file system's error. The caller closes the checkpoint.
func Open(path string) (*Checkpoint, error) {
	c, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: open %s: %w", path, err)
	}
	return c, nil
}

// open is Open, but its errors do not name the path.
func open(path string) (*Checkpoint, error) {
	file, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	c, err := decode(file, size)
	if err != nil {
		file.Close()
		return nil, err
	}
	c.Path, c.file = path, file
	return c, nil
}

// openRegular opens a regular file for reading and returns its size, which bounds later reads and
// allocations. It refuses other files, such as pipes, which could block. Errors do not name the
// path; the callers add it.
func openRegular(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, withoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%w: not a regular file", ErrDamaged)
	}
	file, err := os.Open(path)
	return file, info.Size(), withoutPath(err)
}

// withoutPath returns the cause of a file system's error, without operation and path.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// decode reads the header of a checkpoint of size bytes, and verifies the checksum of all of it.
func decode(r io.ReaderAt, size int64) (*Checkpoint, error) {
	l, err := readLayout(r, size)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{size: size, layout: l}
	if c.Header, err = headerIn(l); err != nil {
		return nil, err
	}
	// The digits in the header must be the digits of the decoded metadata. Otherwise the key occurs
	// twice, and the checksum would be taken from the wrong place.
	digits := l.metadata[checksumKey]
	at := checksumAt(l.header)
	c.sum, err = strconv.ParseUint(digits, 16, 64)
	if at < 0 || digits != string(l.header[at:at+len(noChecksum)]) || err != nil || digits != checksumText(c.sum) {
		return nil, fmt.Errorf("%w: the checksum is missing in its metadata", ErrDamaged)
	}
	if err := c.read(r, func(data io.Reader) error {
		_, err := io.Copy(io.Discard, data)
		return err
	}); err != nil {
		return nil, err
	}
	return c, nil
}

// headerIn returns the header in the metadata of a checkpoint.
func headerIn(l layout) (h Header, err error) {
	switch v, ok := l.metadata[versionKey]; {
	case !ok:
		return h, fmt.Errorf("%w: it is not a checkpoint: %s is missing in its metadata", ErrDamaged, versionKey)
	case v != version:
		return h, fmt.Errorf("%w %s of the format; this program reads version %s", ErrVersion, v, version)
	}
	if err = json.Unmarshal([]byte(l.metadata[headerKey]), &h); err == nil {
		err = h.check()
	}
	if err != nil {
		return h, fmt.Errorf("%w: header: %w", ErrDamaged, err)
	}
	return h, nil
}

// read calls load with a reader of the tensors' data; load must read all of it. Then read compares
// the checksum of the file. It hashes the data while load reads it, so one pass over the file is
// enough.
func (c *Checkpoint) read(r io.ReaderAt, load func(data io.Reader) error) error {
	hash := xxhash.New()
	start := slices.Clone(c.layout.header)
	copy(start[checksumAt(start):], noChecksum)
	if err := writeTensors(hash, start, nil); err != nil {
		return err
	}
	data := io.NewSectionReader(r, c.layout.first(), c.size-c.layout.first())
	if err := load(bufio.NewReaderSize(io.TeeReader(data, hash), bufferSize)); err != nil {
		return err
	}
	if hash.Sum64() != c.sum {
		return fmt.Errorf("%w: its checksum is wrong", ErrDamaged)
	}
	return nil
}

// Load fills the data of the tensors, and verifies the checksum again. The tensors must have the
// names and the shapes of the checkpoint's tensors, in any order. Otherwise Load returns an error
// and does not change the tensors. After any other error the data of the tensors is undefined.
func (c *Checkpoint) Load(tensors []Tensor) error {
	err := c.match(tensors)
	if err == nil {
		err = c.read(c.file, func(data io.Reader) error { return c.fill(tensors, data) })
	}
	if err != nil {
		return fmt.Errorf("checkpoint: load %s: %w", c.Path, err)
	}
	return nil
}

// match returns an error unless the file has exactly these tensors.
func (c *Checkpoint) match(tensors []Tensor) error {
	stored := make(map[string]tensorInfo)
	for _, e := range c.layout.entries {
		stored[e.name] = e.info
	}
	for _, t := range tensors {
		info, ok := stored[t.Name]
		if !ok {
			return fmt.Errorf("it has no tensor %q, or the program requests this tensor twice", t.Name)
		}
		b, kind, err := t.elements()
		if err != nil {
			return err
		}
		if kind != info.DType {
			return fmt.Errorf("its tensor %q has elements of type %s, want %s", t.Name, info.DType, kind)
		}
		if n, count := info.Offsets[1]-info.Offsets[0], len(b)/sizes()[kind]; !slices.Equal(info.Shape, t.Shape) || n != int64(len(b)) {
			return fmt.Errorf("its tensor %q has the shape %v, want %d elements in the shape %v", t.Name, info.Shape, count, t.Shape)
		}
		delete(stored, t.Name)
	}
	for name := range stored {
		return fmt.Errorf("it has a tensor %q, which the program does not request", name)
	}
	return nil
}

// fill reads the data of the tensors, in the order of the file. match has accepted the tensors
// before.
func (c *Checkpoint) fill(tensors []Tensor, data io.Reader) error {
	into := make(map[string][]byte)
	for _, t := range tensors {
		into[t.Name], _, _ = t.elements()
	}
	for _, e := range c.layout.entries {
		if _, err := io.ReadFull(data, into[e.name]); err != nil {
			return fmt.Errorf("tensor %q: %w", e.name, err)
		}
	}
	return nil
}

// Close closes the file. Load must not be called afterwards.
func (c *Checkpoint) Close() error { return c.file.Close() }
