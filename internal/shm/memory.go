package shm

import (
	"errors"
	"fmt"
)

// ErrUnsupported is the error on systems other than Linux, where memory files (memfd) and eventfds
// are missing. It wraps errors.ErrUnsupported.
var ErrUnsupported = fmt.Errorf("shm: shared memory on this system: %w", errors.ErrUnsupported)

// Ref is the position of a vector in an Arena; 0 means that the vector is not in the arena.
type Ref uint64

// inPage returns the offset in its page at which a vector begins. r must not be 0.
func (r Ref) inPage() int { return int((r - 1) % pageSize) }

// PageEdges returns how many bytes of a vector at r lie in pages that the vector does not fill:
// head bytes at its beginning and tail bytes at its end, each less than a page. Arena.Abandon
// leaves these pages.
func (r Ref) PageEdges(bytes int) (head, tail int) {
	begin := r.inPage()
	head = min((pageSize-begin)%pageSize, bytes)
	return head, min((begin+bytes)%pageSize, bytes-head)
}
