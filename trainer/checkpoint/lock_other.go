//go:build !unix || aix || solaris

package checkpoint

import (
	"errors"
	"os"
)

// openTemporary opens a temporary file of another writer, dead or alive.
func openTemporary(path string) (*os.File, error) { return os.Open(path) }

// flock does nothing: without locks the age of a file decides whether it is abandoned.
func flock(*os.File, lockKind) error { return errors.ErrUnsupported }
