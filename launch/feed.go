package launch

import (
	"io"
	"slices"

	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/wire"
)

// copyInput copies the input to processes, until it ends or all of them have closed their ends.
// Each part goes to all of them before the next part is read.
func copyInput(from io.Reader, to []proc.Process) {
	part := make([]byte, wire.MaxPart/4)
	for len(to) > 0 {
		n, err := from.Read(part)
		if n > 0 {
			to = slices.DeleteFunc(to, func(p proc.Process) bool { return p.Input(part[:n]) != nil })
		}
		if err == nil {
			continue
		}
		for _, p := range to {
			_ = p.Input(nil) // an error means that the process has closed its end
		}
		return
	}
}
