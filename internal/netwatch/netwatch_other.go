//go:build !linux

package netwatch

import (
	"errors"
	"fmt"
)

// Open returns errors.ErrUnsupported: changes are reported on Linux only.
func Open() (*Watcher, error) { return nil, fmt.Errorf("netwatch: %w", errors.ErrUnsupported) }
