package mailbox

import (
	"math/bits"
	"sync"
)

// Size classes. Messages are pooled with their memory, in classes of powers of two. The
// garbage collector frees the memory of longer messages, and also empties the pools from
// time to time, so their size is bounded by recent use.
const (
	minClass = 8  // 256 bytes
	maxClass = 26 // 64 MiB; longer ones are not pooled
)

// pool holds free messages by the class of their memory. Each Box has its own pool, so that
// the memory of an epoch becomes garbage when the epoch ends.
type pool struct {
	// bare has Messages without memory for a payload, for empty messages and for payloads that are
	// read into the receiver's buffer.
	bare    sync.Pool
	classes [maxClass - minClass + 1]sync.Pool
}

// class returns the index of the smallest class that holds size bytes. The index may exceed
// the last class.
func class(size int) int { return max(bits.Len(uint(size-1)), minClass) - minClass }

// get returns a message whose Buf has size bytes of unspecified content; Buf is nil for
// size 0.
func (p *pool) get(size int) *Message {
	from, capacity := &p.bare, 0
	if size > 0 {
		c := class(size)
		if c >= len(p.classes) {
			m := &Message{store: make([]byte, size)}
			m.Buf = m.store
			return m
		}
		from, capacity = &p.classes[c], 1<<(c+minClass)
	}
	m, _ := from.Get().(*Message)
	if m == nil {
		m = &Message{}
		if capacity > 0 {
			m.store = make([]byte, capacity)
		}
	}
	m.Buf = m.store[:size]
	return m
}

// put returns a message to the pool. No goroutine may use the message any more.
func (p *pool) put(m *Message) {
	store := m.store
	*m = Message{store: store}
	if store == nil {
		p.bare.Put(m)
		return
	}
	if c := class(len(store)); c < len(p.classes) {
		p.classes[c].Put(m)
	}
}
