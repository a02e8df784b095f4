package proc

import (
	"os"
	"os/exec"
	"testing"

	"github.com/elrun/elrun/internal/cores"
	"github.com/elrun/elrun/launch/internal/sink"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// outputReceiver keeps the output of a process, which sends no messages.
type outputReceiver struct {
	Receiver // nil: methods that outputReceiver does not define are not called
	sink.Buffer
}

func (o *outputReceiver) Output(_ wire.Target, part []byte) { _, _ = o.Write(part) } // never fails

func (*outputReceiver) OutputEnd(wire.Target) {}

func (*outputReceiver) Ended(spec.Exit) {}

// A peer on a crowded host has a larger timer slack. Peers on other hosts and the launcher keep the
// default.
func TestTimerSlack(t *testing.T) {
	own, err := os.ReadFile("/proc/self/timerslack_ns")
	if err != nil {
		t.Fatal(err)
	}
	few := crowdedFrom * cores.Count()
	for peers, want := range map[int]string{1: string(own), few: string(own), few + 1: "5000000\n"} {
		got := &outputReceiver{}
		c, err := StartLocal(0, peers, exec.Command("cat", "/proc/self/timerslack_ns"), false, got, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Watch()
		if text := got.String(); text != want {
			t.Errorf("%d peers: %q, want %q", peers, text, want)
		}
	}
	if now, err := os.ReadFile("/proc/self/timerslack_ns"); err != nil || string(now) != string(own) {
		t.Errorf("the timer slack of the launcher is %q (error %v), before %q", now, err, own)
	}
}
