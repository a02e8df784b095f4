package agent

import (
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// An agent gives its peers the grace period of the launcher, or the default for a launcher that names none.
func TestGraceOfAnAgent(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: spec.DefaultGrace, -1: spec.DefaultGrace, time.Minute: time.Minute} {
		if got := (wire.BeginOrder{Grace: given}).GraceOrDefault(); got != want {
			t.Errorf("%v: got %v, want %v", given, got, want)
		}
	}
}

// An agent that receives no heartbeats ends if it has no peers, and runs on if it has peers. A
// heartbeat keeps an agent without peers running.
func TestAgentOfASilentLauncher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		a := newHostAgent(in, io.Discard)
		begun := time.Now()
		go func() {
			for range 30 {
				<-time.After(wire.BeatPeriod)
				if err := (&wire.Writer{W: out}).Write(wire.Message{Order: wire.Order{Beat: true}}); err != nil {
					t.Error(err)
				}
			}
		}()
		if err := a.serve(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took != 30*wire.BeatPeriod+wire.SilencePeriod {
			t.Errorf("it served for %v", took)
		}
		_ = in.Close() // ends the reading goroutine
	})
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		a := newHostAgent(in, io.Discard)
		a.peers[0] = &proc.Local{Peer: &os.Process{Pid: os.Getpid()}}
		begun := time.Now()
		time.AfterFunc(10*wire.SilencePeriod, func() { _ = out.Close() })
		if err := a.serve(); err != nil || time.Since(begun) != 10*wire.SilencePeriod {
			t.Errorf("served for %v, error %v", time.Since(begun), err)
		}
	})
}

// An agent writes the record that its launcher sends.
func TestAgentKeepsEnd(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	s := spec.Status{Job: "far", Step: 3, Of: 3, Ended: &spec.Ended{Outcome: "finished"}}
	if err := newHostAgent(strings.NewReader(""), io.Discard).handle(wire.Message{Order: wire.Order{Ended: &s}}); err != nil {
		t.Fatal(err)
	}
	if got, err := ctl.LastStatus(t.Context(), "far"); err != nil || got.Ended.Outcome != "finished" {
		t.Errorf("%+v, %v", got, err)
	}
}
