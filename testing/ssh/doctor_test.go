package ssh

import (
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// The doctor reports about each host, about each connection between two hosts, and about a host that cannot be reached.
func TestDoctor(t *testing.T) {
	s := newServer(t)
	flags := []string{"doctor", "--ssh", s.ssh(), "--connect-timeout", process.Limit.String(), "-H"}
	out, errs, status := process.Command(t, append(flags, "a,b")...)
	for _, want := range []string{"ok    a: system: ", "ok    b: clock: as here\n", "a: cores: ", "ok    a -> b: connects, round trip ", "ok    b -> a: connects, round trip "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if status != 0 || t.Failed() {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	out, errs, status = process.Command(t, append(flags, "a,no-such-host.invalid")...)
	if status != 1 || !strings.Contains(out, "fail  no-such-host.invalid: there is no host of this name") || !strings.Contains(out, "a: cores: ") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
}
