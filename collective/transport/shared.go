package transport

// Sharer is a Transport whose rank may share memory with others of its host. Whatever
// revokes or closes the transport revokes the memory as well, and the Close of another
// rank is told to it by Memory.Gone.
type Sharer interface {
	// Shared returns the memory, the same each time; nil if there is none.
	Shared() *Shared
}

// Shared is memory that some ranks share.
type Shared struct {
	// Memory is attached at this rank. Calls use what this module's own transports make; in
	// any other memory they send messages.
	Memory Memory
	// Ranks lists the transport's ranks that share the memory, in the order of its own ranks.
	Ranks []int
	// Cause returns why the transport was revoked; nil if it was not.
	Cause func() error
	// Release gives the memory back. It is called once, after the transport's Close, when
	// nothing uses the memory any more.
	Release func() error
}

// Memory is what a transport tells the memory that it shares. No method blocks.
type Memory interface {
	// Revoke makes every pending and later wait of this process in the memory fail.
	Revoke()
	// Gone ends the waits for a rank of the memory that does nothing more, but for what it
	// has done already.
	Gone(rank int)
}
