package netwatch

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(insideVar) != "" {
		os.Exit(inside())
	}
	goleak.VerifyTestMain(m)
}

// insideVar is the name of an environment variable. If it is set, the test binary runs inside
// instead of the tests.
const insideVar = "ELRUN_NETWATCH_INSIDE"

// inside makes changes to the network, and expects a report of each. It returns the exit code.
func inside() int {
	w, err := Open()
	if err != nil {
		println(err.Error())
		return 1
	}
	for _, change := range [][]string{
		{"link", "set", "lo", "up"},
		{"addr", "add", "10.99.0.1/24", "dev", "lo"},
		{"addr", "del", "10.99.0.1/24", "dev", "lo"},
	} {
		if out, err := exec.Command("ip", change...).CombinedOutput(); err != nil {
			println(err.Error(), string(out))
			return 1
		}
		select {
		case <-w.Changes():
		case <-time.After(4 * time.Minute):
			println("nothing was told of", change[0], change[1])
			return 1
		}
	}
	if err := w.Close(); err != nil {
		println(err.Error())
		return 1
	}
	return 0
}

// A Watcher reports changes of interfaces and addresses. The test makes the changes in a network
// namespace of its own.
func TestChanges(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root")
	}
	for _, tool := range []string{"ip", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s: install iproute2 and util-linux", tool)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--net", self)
	cmd.Env = append(os.Environ(), insideVar+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// Close ends a Watcher that has seen no changes, and closes its channel.
func TestClose(t *testing.T) {
	w, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	for range w.Changes() { // drains reports from before Close; ends when the channel is closed
	}
}
