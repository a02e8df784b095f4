package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

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
