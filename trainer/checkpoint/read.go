package checkpoint

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/cespare/xxhash/v2"
)

// Checkpoint is an open checkpoint. Its checksums were correct when it was opened.
type Checkpoint struct {
	Header
	Path string

	file  *os.File
	state section
}

// section is the position of the state in a file, with the checksum that it must have.
type section struct {
	first, size int64   // in bytes
	seed        [8]byte // the header's checksum; the state's checksum covers it too
	sum         uint64  // XXH64 of seed and state
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
	h, state, err := decode(file, size)
	if err != nil {
		file.Close()
		return nil, err
	}
	return &Checkpoint{Header: h, Path: path, file: file, state: state}, nil
}

// openRegular opens a regular file for reading and returns its size. It refuses other files, such
// as pipes, which could block. Errors do not name the path; callers do.
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

// decode reads the header of a checkpoint of size bytes, and verifies the checksums of all of it.
func decode(r io.ReaderAt, size int64) (h Header, state section, err error) {
	start, err := readStart(r, size)
	if err != nil {
		return h, state, err
	}
	state = section{first: int64(len(start)), size: size - int64(len(start)) - endSize}
	copy(state.seed[:], start[len(start)-8:])
	if err := json.Unmarshal(start[preambleSize:len(start)-8], &h); err != nil {
		return h, state, fmt.Errorf("%w: header: %w", ErrDamaged, err)
	}
	if err := h.check(); err != nil {
		return h, state, fmt.Errorf("%w: header: %w", ErrDamaged, err)
	}
	if state.sum, err = readEnd(r, size, state.size); err != nil {
		return h, state, err
	}
	return h, state, state.read(r, func(r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
}

// readStart reads and verifies the part before the state: preamble, header and checksum.
func readStart(r io.ReaderAt, size int64) ([]byte, error) {
	if size < preambleSize+8+endSize {
		return nil, fmt.Errorf("%w: %d bytes are too few for a checkpoint", ErrDamaged, size)
	}
	preamble := make([]byte, preambleSize)
	if _, err := r.ReadAt(preamble, 0); err != nil {
		return nil, err
	}
	if string(preamble[:8]) != startMagic {
		return nil, fmt.Errorf("%w: it does not begin like a checkpoint", ErrDamaged)
	}
	if v := binary.LittleEndian.Uint32(preamble[8:]); v != version {
		return nil, fmt.Errorf("%w %d of the format; this program reads version %d", ErrVersion, v, version)
	}
	length := int64(binary.LittleEndian.Uint32(preamble[12:]))
	// Check the length before the allocation below.
	if length > maxHeader || length > size-preambleSize-8-endSize {
		return nil, fmt.Errorf("%w: %d bytes with a header of %d", ErrDamaged, size, length)
	}
	start := make([]byte, preambleSize+length+8)
	if _, err := r.ReadAt(start, 0); err != nil {
		return nil, err
	}
	sum := binary.LittleEndian.Uint64(start[len(start)-8:])
	if xxhash.Sum64(start[:len(start)-8]) != sum {
		return nil, fmt.Errorf("%w: the header's checksum is wrong", ErrDamaged)
	}
	return start, nil
}

// readEnd reads the part after a state of stateSize bytes, and returns the checksum in it.
func readEnd(r io.ReaderAt, size, stateSize int64) (sum uint64, err error) {
	end := make([]byte, endSize)
	if _, err := r.ReadAt(end, size-endSize); err != nil {
		return 0, err
	}
	if string(end[16:]) != endMagic {
		return 0, fmt.Errorf("%w: its end is missing", ErrDamaged)
	}
	if length := binary.LittleEndian.Uint64(end); length != uint64(stateSize) {
		return 0, fmt.Errorf("%w: it has %d bytes of state, %d were written", ErrDamaged, stateSize, length)
	}
	return binary.LittleEndian.Uint64(end[8:]), nil
}

// read passes the section to load, and then compares the checksum.
func (s section) read(r io.ReaderAt, load func(io.Reader) error) error {
	hash := xxhash.New()
	hash.Write(s.seed[:]) // never fails
	buffered := bufio.NewReaderSize(io.NewSectionReader(r, s.first, s.size), bufferSize)
	counted := &counter{r: io.TeeReader(buffered, hash)}
	if err := load(counted); err != nil {
		return err
	}
	if counted.n != s.size {
		return fmt.Errorf("%d of %d bytes of the state were read", counted.n, s.size)
	}
	if hash.Sum64() != s.sum {
		return fmt.Errorf("%w: the state's checksum is wrong", ErrDamaged)
	}
	return nil
}

// counter is a reader that counts the bytes read through it.
type counter struct {
	r io.Reader
	n int64
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// Load passes the state to load, and verifies its checksum again. load must read all of the
// state. After an error the result of load must not be used.
func (c *Checkpoint) Load(load func(io.Reader) error) error {
	if err := c.state.read(c.file, load); err != nil {
		return fmt.Errorf("checkpoint: load %s: %w", c.Path, err)
	}
	return nil
}

// Close closes the file. Load must not be called afterwards.
func (c *Checkpoint) Close() error { return c.file.Close() }
