package collective

import (
	"fmt"

	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/internal/shm"
)

// Alloc returns n zero elements in the memory that the ranks of this host share (a symmetric heap).
// If dst and src of an AllReduce are such vectors at all ranks, the call copies nothing: each rank
// reduces its part directly from the memory of the other ranks. For other calls the result is an
// ordinary slice. Without shared memory Alloc returns a slice of the Go heap.
//
// The slice outlives the communicator and stays allocated until Free, as the garbage collector does
// not manage it. An AllReduce that fails removes its dst from the shared memory, because other
// ranks may still write there. From then on dst is an ordinary slice, which later calls copy (see
// IsShared).
func Alloc[T Number](c *Comm, n int) ([]T, error) {
	if !c.isValid() {
		return nil, fmt.Errorf("collective: alloc: %w", errNil)
	}
	if n < 0 {
		return nil, fmt.Errorf("collective: alloc: %w: %d elements, want 0 or more", ErrArgument, n)
	}
	c.mu.Lock()
	closed := c.closed || c.seq.isClosed()
	c.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("collective: alloc: %w", ErrClosed)
	}
	if !c.SharesMemory() || n == 0 {
		return make([]T, n), nil
	}
	v, err := shm.Alloc[T](c.shared.Arena, n)
	if err != nil {
		return nil, fmt.Errorf("collective: alloc: %w", err)
	}
	return v, nil
}

// IsShared reports whether v lies in the memory that the ranks of c share, so that AllReduce need
// not copy it. With shared memory, IsShared is true for a result of Alloc until its Free, or until
// it is the dst of an AllReduce that fails.
func IsShared[T Number](c *Comm, v []T) bool {
	return c.SharesMemory() && c.shared.Arena.Ref(kernel.Bytes(v)) != 0
}

// Free frees v, which must be a whole result of Alloc. No call at any rank may still use v. Free
// ignores slices that are not in the shared memory.
func Free[T Number](c *Comm, v []T) error {
	if !c.SharesMemory() || len(v) == 0 || !c.shared.Arena.Has(kernel.Bytes(v)) {
		return nil
	}
	if err := c.shared.Arena.Free(kernel.Bytes(v)); err != nil {
		return fmt.Errorf("collective: free: %w", err)
	}
	return nil
}
