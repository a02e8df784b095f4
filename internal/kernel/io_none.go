//go:build !unix

package kernel

import "errors"

// HaveCalls tells whether there are Read and WriteTwo.
const HaveCalls = false

// Read is not there.
func Read(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }

// WriteTwo is not there.
func WriteTwo(uintptr, []byte, []byte) (int, error) { return 0, errors.ErrUnsupported }
