package collective

import (
	"fmt"

	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/internal/shm"
)

// Alloc returns n elements, zero, in the memory that the ranks of this host share. An
// AllReduce of which dst and src are such at all ranks copies nothing: each rank combines
// its part straight out of the others' memory. Elsewhere they serve as any slice; where
// there is no shared memory they are one.
//
// The slice outlives the communicator, and stays until Free, as the garbage collector
// does not see it. An AllReduce that fails takes its dst out of the shared memory, as other
// ranks may still write there: it goes on as any slice, which is copied (see IsShared).
func Alloc[T Number](c *Comm, n int) ([]T, error) {
	if !c.made() {
		return nil, fmt.Errorf("collective: alloc: %w", errNil)
	}
	if n < 0 {
		return nil, fmt.Errorf("collective: alloc: %w: %d elements", ErrArgument, n)
	}
	if c.isClosed() {
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

// IsShared reports whether v lies in the memory that the ranks of c share: then AllReduce
// need not copy it. What Alloc returns does, where there is such memory, until it is the dst
// of a call that fails.
func IsShared[T Number](c *Comm, v []T) bool {
	return c.SharesMemory() && c.shared.Arena.Ref(kernel.Bytes(v)) != 0
}

// SharesMemory reports whether Alloc returns memory that ranks share.
func (c *Comm) SharesMemory() bool { return c.made() && c.shared != nil && c.shared.Arena != nil }

// SameMemory reports whether slices that Alloc returns at c and at d, which may be closed,
// lie in the same shared memory: then those of one are as good at the other.
func (c *Comm) SameMemory(d *Comm) bool {
	return c.SharesMemory() && d.SharesMemory() && c.shared.Arena == d.shared.Arena
}

// Free gives back what Alloc returned, whole. No call may be using it, at any rank.
func Free[T Number](c *Comm, v []T) error {
	if !c.SharesMemory() || len(v) == 0 || !c.shared.Arena.Has(kernel.Bytes(v)) {
		return nil
	}
	if err := c.shared.Arena.Free(kernel.Bytes(v)); err != nil {
		return fmt.Errorf("collective: free: %w", err)
	}
	return nil
}
