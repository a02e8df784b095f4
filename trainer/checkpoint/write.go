package checkpoint

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"github.com/elrun/elrun/internal/private"
)

// Parts of the format; see the package's documentation.
const (
	startMagic   = "elrun\x00ck"
	endMagic     = "elrunend"
	version      = 1
	preambleSize = 16
	endSize      = 24
	// maxHeader bounds what a damaged length can make a reader allocate.
	maxHeader = 64 << 20
	// bufferSize is what is read or written at once.
	bufferSize = 256 << 10
)

// Write writes a checkpoint of what state writes into dir, which is created if it is
// missing, and returns its path. Folder and file are for the user alone. It is on the disk when Write returns; before, no file
// of its name appears. A checkpoint of the same step is replaced. Write may be called
// from any goroutine, and by several processes for one folder. After an error nothing
// new is left in dir.
func Write(dir string, h Header, state func(io.Writer) error) (path string, err error) {
	path = filepath.Join(dir, fileName(h.Step))
	if err := private.MkdirAll(dir); err != nil {
		return "", fmt.Errorf("checkpoint: write step %d: %w", h.Step, err)
	}
	err = replace(path, func(w io.Writer) error { return encode(w, h, state) })
	if err != nil {
		return "", fmt.Errorf("checkpoint: write step %d: %w", h.Step, err)
	}
	return path, nil
}

// encode writes a whole checkpoint to w.
func encode(w io.Writer, h Header, state func(io.Writer) error) error {
	start, err := encodeStart(h)
	if err != nil {
		return err
	}
	if _, err := w.Write(start); err != nil {
		return err
	}
	out := &summed{w: w, hash: xxhash.New()}
	out.hash.Write(start[len(start)-8:]) // never fails
	if err := state(out); err != nil {
		return err
	}
	end := binary.LittleEndian.AppendUint64(nil, uint64(out.n))
	end = binary.LittleEndian.AppendUint64(end, out.hash.Sum64())
	_, err = w.Write(append(end, endMagic...))
	return err
}

// encodeStart returns preamble, header and their checksum.
func encodeStart(h Header) ([]byte, error) {
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	text, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if len(text) > maxHeader {
		return nil, fmt.Errorf("header: %d bytes, at most %d are allowed", len(text), maxHeader)
	}
	start := binary.LittleEndian.AppendUint32([]byte(startMagic), version)
	start = binary.LittleEndian.AppendUint32(start, uint32(len(text)))
	start = append(start, text...)
	return binary.LittleEndian.AppendUint64(start, xxhash.Sum64(start)), nil
}

// summed counts and sums up what is written through it.
type summed struct {
	w    io.Writer
	hash *xxhash.Digest
	n    int64
}

// Write writes to the writer below.
func (s *summed) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.hash.Write(p[:n]) // never fails
	s.n += int64(n)
	return n, err
}

// replace makes a file with what write writes, and puts it in the place of path when
// it is complete and on the disk. A crash leaves the old file or the new one, and
// perhaps a temporary one, which the next call removes. Only the user may read the new
// file, whatever the mode of the old one.
func replace(path string, write func(io.Writer) error) (err error) {
	sweep(path)
	temporary, err := createTemporary(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, temporary.Close()) }() // not before: the lock ends with it
	if err = fill(temporary, write); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		_ = remove(temporary.Name()) // or the next writer does
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// fill writes a file and waits until it is on the disk.
func fill(file *os.File, write func(io.Writer) error) error {
	buffered := bufio.NewWriterSize(file, bufferSize)
	err := write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		err = file.Sync()
	}
	return err
}

// syncFolder makes a renamed file's name last.
func syncFolder(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}
