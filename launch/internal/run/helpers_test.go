package run

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/spec"
)

// testJob returns a name that no other process uses.
func testJob(t *testing.T) string {
	t.Helper()
	return spec.JobName(strings.ReplaceAll(t.Name(), "/", "-"), strconv.Itoa(os.Getpid())+"t")
}

// serve serves the control socket of a peer of this process until the end of the test.
func serve(t *testing.T, job string, index int, s ctl.Services) *ctl.Control {
	t.Helper()
	c, err := ctl.Serve(ctl.SocketName{Job: job, Index: index, PID: os.Getpid()}, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
