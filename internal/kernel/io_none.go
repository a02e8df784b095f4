//go:build !unix

package kernel

import "errors"

// HaveCalls is true if Read and WriteTwo are implemented.
const HaveCalls = false

// Read returns errors.ErrUnsupported.
func Read(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }

// WriteTwo returns errors.ErrUnsupported.
func WriteTwo(uintptr, []byte, []byte) (int, error) { return 0, errors.ErrUnsupported }
