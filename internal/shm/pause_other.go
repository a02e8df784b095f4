//go:build !amd64

package shm

// pause does nothing: there is no portable hint for a polling loop.
func pause() {}
