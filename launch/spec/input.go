package spec

import (
	"io"
	"os"
)

// Input has the options of Run for the standard input of peers. The zero value gives no peer any
// input. Only the peers that are started at the beginning get input: a later one would miss a part
// of it.
type Input struct {
	// Stdin is the input. If peer 0 alone gets it, runs on this host, and Stdin is an *os.File,
	// then the peer inherits the file. Otherwise Run reads Stdin as fast as the slowest of the peers
	// that get it; after Run has returned, a goroutine may still be reading from Stdin.
	Stdin io.Reader
	// All gives each peer the whole input; otherwise peer 0 gets it.
	All bool
}

// GoesTo reports whether the process with an index gets the input.
func (in *Input) GoesTo(index int) bool {
	return in.Stdin != nil && (index == 0 || in.All && index < MaxPeers)
}

// File returns the file that peer 0 on this host inherits; nil if the input is copied.
func (in *Input) File() *os.File {
	f, _ := in.Stdin.(*os.File)
	if in.All {
		return nil
	}
	return f
}
