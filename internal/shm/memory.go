package shm

import "errors"

// ErrUnsupported is the error on systems other than Linux, where memory files (memfd) and eventfds
// are missing.
var ErrUnsupported = errors.New("shm: shared memory is not supported on this system")

// Ref is the position of a vector in an Arena; 0 means that the vector is not in the arena.
type Ref uint64
