package transport

// Sharer is an optional interface of a Transport whose rank may share memory with other ranks of
// its host. The end of the transport also ends the memory: a revocation or Close of the transport
// revokes the memory, and the transport reports the Close of another rank by Memory.Gone.
type Sharer interface {
	// Shared returns the memory, always the same; nil if there is none.
	Shared() *Shared
}

// Shared is memory that several ranks share.
type Shared struct {
	// Memory is the memory as this rank has attached it. Calls use memory made by the
	// transports of this module; with any other implementation they send messages.
	Memory Memory
	// Words are words that these ranks share; nil if they share none.
	Words Words
	// Ranks has the ranks of the transport that share the memory. Its index is the rank
	// within the memory.
	Ranks []int
	// Cause returns the cause of the transport's revocation; nil before a revocation.
	Cause func() error
	// Release frees the memory. It is called once, after Close of the transport, when no call uses
	// the memory any more.
	Release func() error
}

// Words are a few words a rank, 0 at first, that the ranks of a host share. A rank is given by its
// index in Shared.Ranks, and each rank has at least four words. No method waits. All are safe for
// concurrent use, and none is called after Release.
type Words interface {
	// LoadWord returns word i of a rank.
	LoadWord(rank, i int) uint64
	// StoreWord sets word i of this rank.
	StoreWord(i int, v uint64)
	// SwapWord sets word i of a rank to next if it is old, and reports whether it was.
	SwapWord(rank, i int, old, next uint64) bool
}

// Memory is the part of shared memory that its transport controls. No method blocks.
type Memory interface {
	// Revoke makes every pending and later wait of this process in the memory fail.
	Revoke()
	// Gone makes every pending and later wait for the given rank of the memory fail, except waits
	// that the rank has satisfied already. It is for a rank that has closed its transport.
	Gone(rank int)
}
