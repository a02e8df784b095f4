package trainer

import "testing"

func TestHooksLog(t *testing.T) {
	var got string
	Hooks{Log: func(line string) { got += line }}.log("peer %d", 3)
	if got != "peer 3" {
		t.Errorf("logged %q", got)
	}
	Hooks{}.log("nobody listens")
}
