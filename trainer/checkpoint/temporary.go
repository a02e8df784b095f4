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

// A file that is being written has another name beside its own, such as
// step-000000001200.elrun.0123456789abcdef.tmp, with random digits, so that several writers
// do not meet. Its writer holds a lock on it, which ends with the process: so the next
// writer can tell what a killed one has left from what is still being written.
const (
	temporarySuffix = ".tmp"
	temporaryDigits = 16
	// temporaryTries is how often a writer begins with another name, as one that cleans up
	// has taken its file for a left one before it was locked.
	temporaryTries = 8
	// abandoned is the age from which a file has no writer any more where locks do not tell:
	// one that is alive changes it all the time.
	abandoned = 10 * time.Minute
)

// temporaryName returns a name beside path that nobody else uses.
func temporaryName(path string) string {
	return fmt.Sprintf("%s.%0*x%s", path, temporaryDigits, rand.Uint64(), temporarySuffix)
}

// temporaryOf is the inverse of temporaryName.
func temporaryOf(name string) (base string, ok bool) {
	base, ok = strings.CutSuffix(name, temporarySuffix)
	dot := len(base) - temporaryDigits - 1
	if !ok || dot < 1 || base[dot] != '.' || strings.ToLower(base[dot:]) != base[dot:] {
		return "", false
	}
	_, err := strconv.ParseUint(base[dot+1:], 16, 64)
	return base[:dot], err == nil
}

// createTemporary makes a locked file beside path, for the user alone: it has what the
// training data has taught.
func createTemporary(path string) (*os.File, error) {
	for range temporaryTries {
		f, err := os.OpenFile(temporaryName(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		if err := lock(f, true); errors.Is(err, errors.ErrUnsupported) || stillThere(f) {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("make a file beside %s: each one is removed at once", path)
}

// stillThere reports whether a file has the name with which it was opened.
func stillThere(f *os.File) bool {
	named, err := os.Lstat(f.Name())
	if err != nil {
		return false
	}
	info, err := f.Stat()
	return err == nil && os.SameFile(named, info)
}

// sweep removes what writers of path, or of a checkpoint of another step beside it, have
// left when they were killed. Files of other names are left alone, and so is what cannot be
// removed: the next one may, and what is to be saved matters more.
func sweep(path string) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return // whoever writes there will say so
	}
	for _, e := range entries {
		base, ok := temporaryOf(e.Name())
		if ok && e.Type().IsRegular() && sameKind(base, filepath.Base(path)) {
			_ = removeAbandoned(filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
}

// sameKind reports whether files of two names have the same writers.
func sameKind(a, b string) bool {
	_, first := stepOf(a)
	_, second := stepOf(b)
	return a == b || first && second
}

// removeAbandoned removes a temporary file whose writer has died.
func removeAbandoned(path string) (err error) {
	f, err := openLeft(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	err = lock(f, false)
	if errors.Is(err, errors.ErrUnsupported) && isOld(f) {
		err = nil
	}
	if err != nil || !stillThere(f) {
		return err
	}
	return remove(path)
}

// isOld reports whether nobody has written to a file for long, where locks do not tell.
func isOld(f fs.File) bool {
	info, err := f.Stat()
	return err == nil && time.Since(info.ModTime()) > abandoned
}
