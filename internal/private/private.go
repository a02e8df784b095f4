// Package private makes files that only the user may read and write: logs, event files and
// whatever else tells of a job. On hosts with several users the umask is often such that
// all may read new files.
//
//	f, err := private.Create("events.jsonl")
//	err = private.MkdirAll("logs")
package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Modes of what is made for the user alone.
const (
	File   fs.FileMode = 0o600
	Folder fs.FileMode = 0o700
)

// Create opens a file for appending that is empty, as os.Create does, and makes it private
// as Append does. Errors name operation and path.
func Create(path string) (*os.File, error) {
	f, err := Append(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() {
		err = f.Truncate(0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Append opens a file, which need not be there, for appending, and makes it private: also one
// that was there before, whatever the umask, before anything is written. A file that belongs
// to somebody else stays as that one wants it, and so does what is not a regular file, as a
// pipe. Errors name operation and path.
func Append(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, File)
	if err != nil {
		return nil, err
	}
	if err := restrict(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// restrict makes a regular file private.
func restrict(f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if info.Mode().Perm() != File {
		if err := f.Chmod(File); err != nil && !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("make it private: %w", err)
		}
	}
	return nil
}

// MkdirAll makes a folder and those above it that are missing, for the user alone. A folder
// that is there stays as it is.
func MkdirAll(path string) error { return os.MkdirAll(path, Folder) }
