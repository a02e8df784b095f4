package chaos

import "github.com/elrun/elrun/event"

// recomputed returns how many microbatches were computed again. It leaves out steps that had
// several attempts, because exact mode repeats a step with a new scale.
func recomputed(events []event.Event) int {
	n := 0
	for _, e := range events {
		if s, ok := e.Body.(event.Step); ok && s.Attempt == 0 {
			n += s.Recomputed
		}
	}
	return n
}
