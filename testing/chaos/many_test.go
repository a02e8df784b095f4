package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
)

// manyLimit is what only a hang exceeds where many peers start on few cores.
const manyLimit = 20 * time.Minute

// many is a job of more peers than the host has cores for.
type many struct {
	peers   int
	program string // in examples
	args    []string
	load    string // idle, busy: beside four loops that compute, or nice: at nice 19
}

// manyJobs are the jobs of a test: in the short form one, in the long form all.
func manyJobs() []many {
	if !pick(false, true) {
		return []many{{peers: 24, program: "hello", load: "idle"}}
	}
	softmax := []string{"--model", "softmax", "--steps", "60", "--exact"}
	var all []many
	for _, load := range []string{"idle", "busy", "nice"} {
		for _, n := range []int{24, 33, 64} {
			all = append(all, many{n, "hello", nil, load}, many{n, "mnist", softmax, load})
		}
	}
	return all
}

// With many more peers than cores all come together, nobody is put out, also while they
// leave at different times, and the result is that of one process. The long form, of which
// -runs says how often, is the table:
//
//	go test ./testing/chaos -run TestManyPeers -v -long -runs 10 -timeout 10h
func TestManyPeers(t *testing.T) {
	dir, built := t.TempDir(), make(map[string]string)
	alone := make(map[string]string) // sums of one process
	for _, m := range manyJobs() {
		t.Run(fmt.Sprintf("%s/%d/%s", m.program, m.peers, m.load), func(t *testing.T) {
			if built[m.program] == "" {
				built[m.program] = buildExample(t, dir, m.program)
			}
			path := built[m.program]
			if m.program == "mnist" {
				data, err := filepath.Abs("../../data/mnist")
				if _, missing := os.Stat(data); err != nil || missing != nil {
					t.Skip("there is no data/mnist: make data")
				}
				m.args = append([]string{"--data", data}, m.args...)
			}
			for range runs(1, 10) {
				took, sum := m.run(t, path, m.peers)
				t.Logf("%d peers of %s, %s: %v", m.peers, m.program, m.load, took.Round(10*time.Millisecond))
				if m.program != "mnist" {
					continue
				}
				if alone[m.program] == "" {
					_, alone[m.program] = many{load: "idle", args: m.args}.run(t, path, 1)
				}
				if sum == "" || sum != alone[m.program] {
					t.Errorf("sha256 %q, of one process %q", sum, alone[m.program])
				}
			}
		})
	}
}

// runs returns how often a test does something: -runs, or as its form says.
func runs(short, long int) int {
	if n := option[int]("runs"); n > 0 {
		return n
	}
	return pick(short, long)
}

// buildExample builds a program of examples in dir.
func buildExample(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	build := exec.Command("go", "build", "-o", path, "github.com/elrun/elrun/examples/"+name)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// run runs the job once and looks at its log. It returns how long the job took and
// the hash of its result.
func (m many) run(t *testing.T, program string, peers int) (took time.Duration, sum string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "events.jsonl")
	words := append([]string{os.Getenv(elrunVariable), "-n", fmt.Sprint(peers), "--events", log, program}, m.args...)
	switch m.load {
	case "busy":
		for range 4 {
			defer keepBusy(t)()
		}
	case "nice":
		words = append([]string{"nice", "-n", "19"}, words...)
	}
	c := exec.Command(words[0], words[1:]...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	begun := time.Now()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	hang := time.AfterFunc(manyLimit, func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	err := c.Wait()
	hang.Stop()
	if err != nil {
		t.Fatalf("after %v: %v\n%s", time.Since(begun), err, tailOf(out.String()))
	}
	nobodyPutOut(t, log)
	if found := regexp.MustCompile(`sha256=([0-9a-f]{64})`).FindStringSubmatch(out.String()); found != nil {
		sum = found[1]
	}
	return time.Since(begun), sum
}

// tailOf returns the end of what was printed.
func tailOf(s string) string { return s[max(0, len(s)-4000):] }

// keepBusy starts a process that computes until the function that it returns is called.
func keepBusy(t *testing.T) func() {
	t.Helper()
	c := exec.Command("sh", "-c", "while :; do :; done")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
}

// nobodyPutOut fails the test if a log tells of a member that was lost or put out.
func nobodyPutOut(t *testing.T, log string) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var e event.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		switch e.Body.(type) {
		case event.Lost, event.Fenced:
			t.Errorf("epoch %d: %s", e.Epoch, line)
		}
	}
}
