//go:build !linux

package netwatch

import (
	"errors"
	"fmt"
)

// Open fails: only Linux is watched.
func Open() (*Watcher, error) { return nil, fmt.Errorf("netwatch: %w", errors.ErrUnsupported) }
