package launch

import (
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// An agent gives its peers the grace period of the launcher, or the default for a launcher that names none.
func TestGraceOfAnAgent(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: defaultGrace, -1: defaultGrace, time.Minute: time.Minute} {
		if got := (beginOrder{Grace: given}).grace(); got != want {
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
				<-time.After(beatPeriod)
				if err := (&frameWriter{w: out}).write(frame{order: order{Beat: true}}); err != nil {
					t.Error(err)
				}
			}
		}()
		if err := a.serve(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took != 30*beatPeriod+silencePeriod {
			t.Errorf("it served for %v", took)
		}
		_ = in.Close() // ends the reading goroutine
	})
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		a := newHostAgent(in, io.Discard)
		a.peers[0] = &local{peer: &os.Process{Pid: os.Getpid()}}
		begun := time.Now()
		time.AfterFunc(10*silencePeriod, func() { _ = out.Close() })
		if err := a.serve(); err != nil || time.Since(begun) != 10*silencePeriod {
			t.Errorf("served for %v, error %v", time.Since(begun), err)
		}
	})
}
