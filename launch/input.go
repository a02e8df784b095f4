package launch

import (
	"errors"
	"io"
	"os"
	"slices"
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

// goesTo reports whether the process with an index gets the input.
func (in *Input) goesTo(index int) bool {
	return in.Stdin != nil && (index == 0 || in.All && index < maxPeers)
}

// file returns the file that peer 0 on this host inherits; nil if the input is copied.
func (in *Input) file() *os.File {
	f, _ := in.Stdin.(*os.File)
	if in.All {
		return nil
	}
	return f
}

// errInputClosed reports that a process takes no input any more.
var errInputClosed = errors.New("standard input is closed")

// copyInput copies the input to processes, until it ends or all of them have closed their ends.
// Each part goes to all of them before the next part is read.
func copyInput(from io.Reader, to []process) {
	part := make([]byte, maxPart/4)
	for len(to) > 0 {
		n, err := from.Read(part)
		if n > 0 {
			to = slices.DeleteFunc(to, func(p process) bool { return p.input(part[:n]) != nil })
		}
		if err == nil {
			continue
		}
		for _, p := range to {
			_ = p.input(nil) // an error means that the process has closed its end
		}
		return
	}
}

// giveInput gives a peer on this host a part of its input, and reports when the peer has taken it.
func (a *hostAgent) giveInput(p *local, part inputPart) {
	err := p.input(part.Data)
	_ = a.out.write(frame{Index: p.index, report: report{Taken: &inputTaken{Closed: err != nil}}}) // an error means that the launcher is gone
}
