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

// Constants of the format; see the package comment.
const (
	startMagic   = "elrun\x00ck"
	endMagic     = "elrunend"
	version      = 1
	preambleSize = 16
	endSize      = 24
	// maxHeader limits the memory that a reader allocates for a damaged length, in bytes.
	maxHeader = 64 << 20
	// bufferSize is the size of reads and writes, in bytes.
	bufferSize = 256 << 10
)

// Write writes a checkpoint with the state that the function state writes, and returns its path.
// It creates dir if necessary. Only the user may read folder and file. The checkpoint is on the
// disk when Write returns; no file has its name before. A checkpoint of the same step is
// replaced. Write is safe for concurrent use, also by several processes in one folder. After an
// error dir has no new file.
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

// encode writes a complete checkpoint to w.
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

// encodeStart returns preamble and header, followed by their checksum.
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

// summed is a writer that counts the bytes written through it and computes their checksum.
type summed struct {
	w    io.Writer
	hash *xxhash.Digest
	n    int64 // bytes written
}

// Write implements io.Writer.
func (s *summed) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.hash.Write(p[:n]) // never fails
	s.n += int64(n)
	return n, err
}

// replace writes a file by means of write, and renames it to path when it is complete and on the
// disk. After a crash path is the old file or the new one; a temporary file may be left, which
// the next call deletes. Only the user may read the new file, whatever the mode of the old one
// was.
func replace(path string, write func(io.Writer) error) (err error) {
	sweep(path)
	temporary, err := createTemporary(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, temporary.Close()) }() // closing releases the lock
	if err = fill(temporary, write); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		_ = remove(temporary.Name()) // if this fails, the next writer deletes it
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// fill writes a file and flushes it to the disk (fsync).
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

// syncFolder flushes a folder to the disk, which makes a rename in it durable.
func syncFolder(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}
