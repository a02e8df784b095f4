package proc

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
)

func TestParseStat(t *testing.T) {
	tail := strings.Repeat(" 1", startField-1)
	for text, want := range map[string]stat{
		"12 (train) T 1 12":                 {'T', 1, 0, ""},
		"12 (a) T (b)) S 1":                 {'S', 1, 0, ""},
		"12 (x) T y) R 1":                   {'R', 1, 0, ""},
		"12 (train) D" + tail + " 4711 9\n": {'D', 1, 4, "4711"},
		"":                                  {}, "12 T": {}, "12 (T": {}, "12 (x)": {}, "12 (x) Tx 1": {},
	} {
		got, ok := parseStat([]byte(text))
		if got != want || ok != (want.state != 0) {
			t.Errorf("%q: got %+v, %v", text, got, ok)
		}
	}
	if Stopped(os.Getpid()) || Stopped(0) {
		t.Error("this process is not stopped, and there is no process 0")
	}
}

// A process is busy, asleep, stopped or a zombie. A process with another start time is a different
// process, and the state is unknown.
func TestInspect(t *testing.T) {
	if got := Inspect(elastic.Member{Process: ProcessName()}); got != elastic.ProcessBusy {
		t.Errorf("this process, which runs, is in state %d", got)
	}
	c := exec.Command("sleep", "600")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }()
	defer func() { _ = c.Process.Kill() }()
	s, ok := readStat("/proc/" + strconv.Itoa(c.Process.Pid))
	if !ok {
		t.Fatal("the child has no state")
	}
	m := elastic.Member{Process: strconv.Itoa(c.Process.Pid) + ":" + s.start}
	for _, step := range []struct {
		signal syscall.Signal
		want   elastic.ProcessState
	}{{0, elastic.ProcessAsleep}, {syscall.SIGSTOP, elastic.ProcessHalted}, {syscall.SIGCONT, elastic.ProcessAsleep}, {syscall.SIGKILL, elastic.ProcessHalted}} {
		if err := c.Process.Signal(step.signal); err != nil {
			t.Fatal(err)
		}
		got := Inspect(m)
		for begun := time.Now(); got != step.want && time.Since(begun) < time.Minute; got = Inspect(m) {
			<-time.After(time.Millisecond)
		}
		if got != step.want {
			t.Errorf("after signal %d: state %d, want %d", step.signal, got, step.want)
		}
	}
	for _, name := range []string{"", "x", "x:1", strconv.Itoa(os.Getpid()) + ":1", "4194305:1"} {
		if got := Inspect(elastic.Member{Process: name}); got != elastic.ProcessUnknown {
			t.Errorf("%q: state %d", name, got)
		}
	}
}
