package shm

// pause tells the processor that this is a loop that polls.
//
//go:noescape
func pause()
