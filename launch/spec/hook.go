package spec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/elrun/elrun/event"
)

// Hook is a shell command that runs at events of the job, for example to send a message. It gets the event as
// a line of JSON on its standard input. If several peers report the same, it runs once. It may take a
// minute; one command of a launcher runs at a time.
type Hook struct {
	Events  []string // kinds of events, as event.Kinds has them
	Command string   // for sh -c
}

// ParseHook parses a hook written as in lost,stall=CMD.
func ParseHook(text string) (Hook, error) {
	names, command, ok := strings.Cut(text, "=")
	if !ok || names == "" || strings.TrimSpace(command) == "" {
		return Hook{}, fmt.Errorf("%q: want events and a command, as in lost,stall=CMD", text)
	}
	h := Hook{Events: strings.Split(names, ","), Command: command}
	for _, name := range h.Events {
		if !slices.Contains(event.Kinds(), name) {
			return Hook{}, fmt.Errorf("no event %q: docs/events.md lists them, as lost, stall, checkpoint and done", name)
		}
		if name == (event.Note{}).Name() {
			return Hook{}, errors.New("the event note has no hooks: elrun prints these lines on standard error")
		}
	}
	return h, nil
}
