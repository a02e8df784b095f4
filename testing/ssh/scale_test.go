package ssh

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/testing/process"
)

// scale runs elrun scale with the wanted number of peers of a host, for example "a:2". It returns
// the output, and whether the command succeeds.
func (j *job) scale(t *testing.T, want string) (out string, ok bool) {
	t.Helper()
	b, err := exec.Command(process.Elrun(), "scale", j.Name, want).CombinedOutput()
	return string(b), err == nil
}

// While the job runs, the number of peers on each host can be changed, and hosts can be added.
func TestScale(t *testing.T) {
	s := newServer(t)
	j := s.start(t, 1<<40, 10*time.Millisecond, "-H", "a,b")
	j.trains(t, 2)
	for _, c := range []struct {
		want, says string
		members    int
	}{
		{"a:3", "host a: 1 peer becomes 3: starting peers 2, 3", 4},
		{"c:2", "host c: 0 peers become 2: starting peers 4, 5", 6},
		{"a:1", "host a: 3 peers become 1: asking peers 3, 2 to leave", 4},
		{"b:0", "host b: 1 peer becomes 0: asking peer 1 to leave", 3},
		{"b:1", "host b: 0 peers become 1: starting peer ", 4},
	} {
		out, ok := j.scale(t, c.want)
		// On a loaded machine the connection to host c may take longer than the command waits.
		if !ok || !strings.Contains(out, c.says) && !strings.Contains(out, "host c is still being connected") {
			t.Fatalf("scale %s: %q, want %q", c.want, out, c.says)
		}
		j.trains(t, c.members)
	}
	for want, says := range map[string]string{
		"nowhere:1":  "host nowhere: ",
		"d:0":        "host d has no peers of this job",
		"a:99999999": "want 0 to",
	} {
		out, ok := j.scale(t, want)
		if ok || !strings.Contains(out, says) || strings.Count(out, "\n") != 1 {
			t.Errorf("scale %s: %q, want an error with %q in a line", want, out, says)
		}
	}
	j.elrun.Signal(t, syscall.SIGINT)
	j.elrun.Wait(t)
	j.gone(t)
}
