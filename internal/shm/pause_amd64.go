package shm

// pause is the PAUSE instruction: it tells the processor that this loop polls, which saves power
// and leaves execution units to the other hardware thread of the core.
//
//go:noescape
func pause()
