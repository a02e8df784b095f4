package chaos

import "github.com/elrun/elrun/event"

// recomputed counts the microbatches that were computed again, though exact mode did not
// ask for it.
func recomputed(events []event.Event) int {
	n := 0
	for _, e := range events {
		if s, ok := e.Body.(event.Step); ok && s.Attempt == 0 {
			n += s.Recomputed
		}
	}
	return n
}
