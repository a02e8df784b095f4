package run

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/say"
	"github.com/elrun/elrun/launch/internal/sink"
)

// held is a log that blocks until it is released.
type held struct {
	sink.Buffer
	release chan struct{}
}

func (h *held) Write(b []byte) (int, error) {
	<-h.release
	return h.Buffer.Write(b)
}

// The end of a process is reported at once, but after all its messages, even while the log blocks
// its output. No output is lost.
func TestDeathIsToldBeforeOutputEnds(t *testing.T) {
	log := &held{release: make(chan struct{})}
	var out sink.Buffer
	con := say.NewConsole(&out, &out, nil, false)
	script := `echo hello; echo '{"known":{}}' >&3; exit 3`
	notices, ended := make(chan notice), make(chan struct{})
	f := newFeed(2, "[2] ", con, notices, nil)
	for i := range f.streams {
		f.streams[i].log = &say.LineWriter{W: log}
	}
	c, err := proc.StartLocal(2, 1, exec.Command("sh", "-c", script), false, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(ended)
		c.Watch()
	}()
	hang := time.After(5 * time.Minute)
	var told []notice
	for len(told) == 0 || told[len(told)-1].exit == nil {
		select {
		case n := <-notices:
			told = append(told, n)
		case <-hang:
			t.Fatalf("the death is not told while the output is held up; so far: %+v", told)
		}
	}
	if e := told[len(told)-1].exit; len(told) != 2 || told[0].msg == nil || e.Index != 2 || e.Code != 3 {
		t.Errorf("told: %+v", told)
	}
	select {
	case <-ended:
		t.Error("the output has ended though nobody took it")
	default:
	}
	close(log.release)
	<-ended
	_ = con.Close(t.Context(), "")
	if !strings.Contains(out.String(), "[2] hello\n") || log.String() != "hello\n" {
		t.Errorf("shown %q, in the log %q", out.String(), log.String())
	}
}
