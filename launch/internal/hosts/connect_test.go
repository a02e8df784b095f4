package hosts

import (
	"errors"
	"strings"
	"testing"

	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// A host's shell may print before the agent does, with or without a line end.
func TestFindAgent(t *testing.T) {
	for _, greeting := range []string{"", "welcome\n", "\x1b]0;host\x07", "welcome\nagain: ", "elrun\n"} {
		h := NewHost(spec.Host{Name: "a"}, nil)
		h.in = wire.NewMessages(strings.NewReader(greeting + wire.AgentReady + "\n"))
		if err := h.findAgent(Plan{}, nil); err != nil {
			t.Errorf("%q: error %v", greeting, err)
		}
		h.in = wire.NewMessages(strings.NewReader(greeting + wire.AgentMark + "none\n"))
		var told *hostError
		if err := h.findAgent(Plan{}, nil); !errors.As(err, &told) {
			t.Errorf("%q: error %v of a host without elrun", greeting, err)
		}
	}
}
