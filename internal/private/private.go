// Package private creates files and folders that only the user may read and write: logs, event
// files and other files about a job. On hosts with several users the umask often lets all users
// read new files.
//
//	f, err := private.Create("events.jsonl")
//	err = private.MkdirAll("logs")
package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Modes of private files and folders.
const (
	File   fs.FileMode = 0o600
	Folder fs.FileMode = 0o700
)

// Create opens a file for appending, empties it as os.Create does, and makes it private as Append
// does. Errors name the operation and the path.
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

// Append opens a file for appending, and creates it if it does not exist. It makes a new or
// existing file private before anything is written, whatever the umask is. A file of another user
// keeps its mode, and so does a file that is not regular, such as a pipe. Errors name the operation
// and the path.
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

// restrict sets the mode of a regular file to File.
func restrict(f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	// The file may have existed with another mode. Only its owner may change the mode, so the error
	// for a file of another user is ignored.
	if info.Mode().Perm() != File {
		if err := f.Chmod(File); err != nil && !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("make it private: %w", err)
		}
	}
	return nil
}

// MkdirAll creates a private folder, and private parents where they are missing. Existing folders
// keep their mode.
func MkdirAll(path string) error { return os.MkdirAll(path, Folder) }

// StateDir returns the folder in which elrun keeps what outlives its processes, for this user:
// below XDG_STATE_HOME, or ~/.local/state. The folder may not exist.
func StateDir() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no folder for the records of ended jobs: %w", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "elrun"), nil
}
