package chaos

import "github.com/elrun/elrun/event"

// recomputed returns how many microbatches were computed again, except those that a new scale of exact mode required.
func recomputed(events []event.Event) int {
	n := 0
	for _, e := range events {
		if s, ok := e.Body.(event.Step); ok && s.Attempt == 0 {
			n += s.Recomputed
		}
	}
	return n
}
