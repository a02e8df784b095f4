package elastic

import "sync"

// identity holds the driver of a process's present identity in its group. A process that was put
// out gets another identity. identity is safe for concurrent use.
type identity struct {
	mu     sync.Mutex
	closed bool     // the group is closed: no other identity follows
	driver *driver  // of the present identity; nil before the first
	former []Member // members that the previous identity knew; the present identity makes offers to them
}

// current returns the driver of the present identity, or nil.
func (i *identity) current() *driver {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.driver
}

// known returns the members that the previous identity knew.
func (i *identity) known() []Member {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.former
}

// replace makes d the driver of the present identity. The argument former lists additional members
// to which the peer may make its offer. replace returns false if the group was closed.
func (i *identity) replace(d *driver, former []Member) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return false
	}
	i.driver, i.former = d, former
	return true
}

// isOpen reports whether another identity may follow.
func (i *identity) isOpen() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !i.closed
}

// close makes further calls of replace fail. It returns the driver of the present identity, and
// whether this is the first call.
func (i *identity) close() (d *driver, first bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	first, i.closed = !i.closed, true
	return i.driver, first
}
