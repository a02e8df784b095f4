//go:build !linux

package direct

import (
	"errors"
	"os"
)

// MaxFiles is the number of files that can be sent in one call.
const MaxFiles = 0

// SendFiles returns errors.ErrUnsupported.
func (c *Conn) SendFiles([]byte, []*os.File) error { return errors.ErrUnsupported }

// ReceiveFiles returns errors.ErrUnsupported.
func (c *Conn) ReceiveFiles([]byte) ([]*os.File, error) { return nil, errors.ErrUnsupported }
