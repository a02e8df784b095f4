package checkpoint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

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

// A writer first creates a temporary file in the folder of the final file, such as
// step-000000001200.safetensors.0123456789abcdef.tmp. The random digits make the names of
// concurrent writers different. The writer holds a lock (flock) on the temporary file, which the
// kernel releases when the process dies. So the next writer can distinguish files of killed
// writers, which it deletes, from files that are still being written.
const (
	temporarySuffix = ".tmp"
	temporaryDigits = 16
	// temporaryTries limits the attempts to create a temporary file. An attempt fails if another
	// writer deletes the file before it is locked (removeAbandonedFiles).
	temporaryTries = 8
	// abandoned is the time since the last change after which a file counts as abandoned on file
	// systems without locks. A running writer changes its file much more often.
	abandoned = 10 * time.Minute
)

// lockKind is a kind of lock on a file. Exclusive locks exclude all others; shared ones exclude
// exclusive ones.
type lockKind int

// Kinds of locks. Only tryExclusive does not wait for the locks of other processes.
const (
	tryExclusive lockKind = iota
	exclusive
	shared
)

// temporaryName returns a random temporary name beside path.
func temporaryName(path string) string {
	return fmt.Sprintf("%s.%0*x%s", path, temporaryDigits, rand.Uint64(), temporarySuffix)
}

// temporaryOf returns the final name that belongs to a temporary name; ok is false for other
// names.
func temporaryOf(name string) (base string, ok bool) {
	base, ok = strings.CutSuffix(name, temporarySuffix)
	dot := len(base) - temporaryDigits - 1
	if !ok || dot < 1 || base[dot] != '.' || strings.ToLower(base[dot:]) != base[dot:] {
		return "", false
	}
	_, err := strconv.ParseUint(base[dot+1:], 16, 64)
	return base[:dot], err == nil
}

// createTemporary creates a locked temporary file beside path. Only the user may read it, because
// parameters reveal something of the training data.
func createTemporary(path string) (*os.File, error) {
	for range temporaryTries {
		f, err := os.OpenFile(temporaryName(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		// Another writer may have deleted the file between its creation and the lock. Then the next
		// attempt uses another name.
		if err := flock(f, exclusive); errors.Is(err, errors.ErrUnsupported) || isLinked(f) {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("create a temporary file beside %s: each of %d files was deleted before it was locked: is another program cleaning the folder?",
		path, temporaryTries)
}

// isLinked reports whether the file still has the name with which it was opened, that is, whether
// no process has deleted it.
func isLinked(f *os.File) bool {
	named, err := os.Lstat(f.Name())
	if err != nil {
		return false
	}
	info, err := f.Stat()
	return err == nil && os.SameFile(named, info)
}

// removeAbandonedFiles deletes the temporary files that killed writers of path have left. If path
// is a checkpoint, it also deletes the temporary files of checkpoints of other steps. Other files
// stay. Errors are ignored: the next call tries again, and the file to be written matters more.
func removeAbandonedFiles(path string) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return // the write that follows will report it
	}
	for _, e := range entries {
		base, ok := temporaryOf(e.Name())
		if ok && e.Type().IsRegular() && sameKind(base, filepath.Base(path)) {
			_ = removeAbandoned(filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
}

// sameKind reports whether removeAbandonedFiles for file b also covers file a: they have the same
// name, or both are checkpoints.
func sameKind(a, b string) bool {
	_, first := stepOf(a)
	_, second := stepOf(b)
	return a == b || first && second
}

// removeAbandoned deletes a temporary file if its writer has died.
func removeAbandoned(path string) (err error) {
	f, err := openTemporary(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// A free lock means that the writer is dead, or that it has not locked the file yet. In the
	// second case the writer detects the deletion and tries another name (createTemporary).
	err = flock(f, tryExclusive)
	if errors.Is(err, errors.ErrUnsupported) && isOld(f) {
		err = nil
	}
	if err != nil || !isLinked(f) {
		return err
	}
	return remove(path)
}

// isOld reports whether a file has not changed for longer than the constant abandoned.
func isOld(f fs.File) bool {
	info, err := f.Stat()
	return err == nil && time.Since(info.ModTime()) > abandoned
}
