package checkpoint

import (
	"bufio"
	"bytes"
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
	version     = "2"
	versionKey  = "elrun.version"
	headerKey   = "elrun.header"
	checksumKey = "elrun.checksum"
	// noChecksum takes the place of the checksum in the file during the computation of the
	// checksum.
	noChecksum = "0000000000000000"
	// bufferSize is the size of reads and writes, in bytes.
	bufferSize = 256 << 10
)

// Path returns the path of the checkpoint of a step in a folder.
func Path(dir string, step int64) string { return filepath.Join(dir, fileName(step)) }

// Write writes a checkpoint with the tensors of the state, and returns its path. It creates dir if
// necessary. Only the user may read folder and file. When Write returns, the checkpoint is on the
// disk. The file gets its name only when it is complete. An existing checkpoint of the same step is
// replaced. Names of tensors must be UTF-8 and unique. Write is safe for concurrent use, even by
// several processes in one folder. After an error dir has no new file.
func Write(dir string, h Header, tensors []Tensor) (path string, err error) {
	path = Path(dir, h.Step)
	if err := private.MkdirAll(dir); err != nil {
		return "", fmt.Errorf("checkpoint: write step %d: %w", h.Step, err)
	}
	err = replace(path, func(w io.Writer) error { return encode(w, h, tensors) })
	if err != nil {
		return "", fmt.Errorf("checkpoint: write step %d: %w", h.Step, err)
	}
	return path, nil
}

// encode writes a complete checkpoint to w.
func encode(w io.Writer, h Header, tensors []Tensor) error {
	if err := h.check(); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	text, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("header: %w", err)
	}
	// Hash the file with zeros in place of the checksum, and then write the same file with the
	// checksum.
	start, err := tensorHeader(tensors, map[string]string{versionKey: version, headerKey: string(text), checksumKey: noChecksum})
	if err != nil {
		return err
	}
	hash := xxhash.New()
	if err := writeTensors(hash, start, tensors); err != nil {
		return err
	}
	copy(start[checksumAt(start):], checksumText(hash.Sum64()))
	return writeTensors(w, start, tensors)
}

// checksumText returns the digits of a checksum in a file.
func checksumText(sum uint64) string { return fmt.Sprintf("%016x", sum) }

// checksumAt returns the position of the checksum's digits in the header of a safetensors file; -1
// if there are none. The search cannot find the key inside another string, because quotes in a
// string are escaped.
func checksumAt(header []byte) int {
	key := []byte(`"` + checksumKey + `":"`)
	i := bytes.Index(header, key)
	if i < 0 || len(header)-i-len(key) < len(noChecksum) {
		return -1
	}
	return i + len(key)
}

// replace writes a file by means of write, and renames it to path when it is complete and on the
// disk. After a crash path is the old file or the new one; a temporary file may be left, which the
// next call deletes. Only the user may read the new file, even if the old file had another mode.
func replace(path string, write func(io.Writer) error) (err error) {
	removeAbandonedFiles(path)
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
