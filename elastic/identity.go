package elastic

import "sync"

// identity is the present identity of a process in its group, by the driver that keeps it. A
// process that was put out gets another identity. It is safe for concurrent use.
type identity struct {
	mu     sync.Mutex
	closed bool     // the group is closed: no other identity follows
	driver *driver  // nil before the first
	former []Member // members that the last identity knew; the present identity makes offers to them
}

// current returns the driver of the present identity, or nil.
func (i *identity) current() *driver {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.driver
}

// known returns the members that the last identity knew.
func (i *identity) known() []Member {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.former
}

// replace makes d the driver of the present identity. The argument former lists additional members
// to which the peer may make its offer. It reports false if the group was closed.
func (i *identity) replace(d *driver, former []Member) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return false
	}
	i.driver, i.former = d, former
	return true
}

// close lets no other identity follow. It returns the driver of the last one, and whether this is
// the first call.
func (i *identity) close() (d *driver, first bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	first, i.closed = !i.closed, true
	return i.driver, first
}
