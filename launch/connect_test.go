package launch

import (
	"errors"
	"strings"
	"testing"
)

// A host's shell may print before the agent does, with or without a line end.
func TestFindAgent(t *testing.T) {
	for _, greeting := range []string{"", "welcome\n", "\x1b]0;host\x07", "welcome\nagain: ", "elrun\n"} {
		h := newRemoteHost(Host{Name: "a"}, nil)
		h.in = newFrameReader(strings.NewReader(greeting + agentReady + "\n"))
		if err := h.findAgent(hostPlan{}, nil); err != nil {
			t.Errorf("%q: error %v", greeting, err)
		}
		h.in = newFrameReader(strings.NewReader(greeting + agentMark + "none\n"))
		var told *hostError
		if err := h.findAgent(hostPlan{}, nil); !errors.As(err, &told) {
			t.Errorf("%q: error %v of a host without elrun", greeting, err)
		}
	}
}
