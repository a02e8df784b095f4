package shm

import "errors"

// ErrUnsupported: this system has no memory without a name that processes can share.
var ErrUnsupported = errors.New("shm: shared memory is not supported on this system")

// Ref says where in an Arena a vector lies; 0 is nowhere.
type Ref uint64
