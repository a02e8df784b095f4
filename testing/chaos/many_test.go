package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// manyLimit is so long that only a hang exceeds it, even if many peers start on few cores.
const manyLimit = 20 * time.Minute

// many is a job with more peers than the host has cores.
type many struct {
	peers   int
	program string // name of the program in examples
	args    []string
	load    string // idle; busy: four other processes compute; nice: the job runs at nice 19
}

// manyJobs returns the jobs of the test: one in the short form, all in the long form.
func manyJobs() []many {
	if !pick(false, true) {
		return []many{{peers: 64, program: "hello", load: "idle"}}
	}
	softmax := []string{"--model", "softmax", "--steps", "60", "--exact"}
	var all []many
	for _, load := range []string{"idle", "busy", "nice"} {
		for _, n := range []int{24, 33, 64} {
			all = append(all, many{n, "hello", nil, load}, many{n, "mnist", softmax, load})
		}
		all = append(all, many{128, "hello", nil, load}, many{256, "hello", nil, load})
	}
	return all
}

// With many more peers than cores, all peers join and no peer is put out, not even while the peers
// leave at different times. The result is the same as with a single process. This command logs the
// duration of each job, ten times:
//
//	go test ./testing/chaos -run TestManyPeers -v -long -runs 10 -timeout 10h
func TestManyPeers(t *testing.T) {
	alone := make(map[string]string) // results of a single process
	for _, m := range manyJobs() {
		t.Run(fmt.Sprintf("%s/%d/%s", m.program, m.peers, m.load), func(t *testing.T) {
			path := process.Example(t, m.program)
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

// runs returns the number of runs of a test: the flag -runs, or the number for the short or the
// long form.
func runs(short, long int) int {
	if n := option[int]("runs"); n > 0 {
		return n
	}
	return pick(short, long)
}

// run runs the job once and checks its log. It returns the duration of the job and the hash of its result.
func (m many) run(t *testing.T, program string, peers int) (took time.Duration, sum string) {
	t.Helper()
	log := process.NewLog(t, filepath.Join(t.TempDir(), "events.jsonl"))
	words := append([]string{process.Elrun(), "-n", fmt.Sprint(peers), "--events", log.Path, program}, m.args...)
	switch m.load {
	case "busy":
		for range 4 {
			defer process.Start(t, exec.Command("sh", "-c", "while :; do :; done")).Kill()
		}
	case "nice":
		words = append([]string{"nice", "-n", "19"}, words...)
	}
	begun := time.Now()
	p := process.Start(t, exec.Command(words[0], words[1:]...))
	if !process.Holds(t.Context(), manyLimit, func() bool { return !p.Running() }) || p.Status() != 0 {
		t.Fatalf("after %v: running %v", time.Since(begun), p.Running())
	}
	took = time.Since(begun)
	nobodyPutOut(t, log)
	if found := regexp.MustCompile(`sha256=([0-9a-f]{64})`).FindStringSubmatch(p.Out.String()); found != nil {
		sum = found[1]
	}
	return took, sum
}

// nobodyPutOut fails the test if a log reports that a member was lost or put out.
func nobodyPutOut(t *testing.T, log *process.Log) {
	t.Helper()
	for _, e := range log.Read(t).Events {
		switch e.Body.(type) {
		case event.Lost, event.Fenced:
			t.Errorf("%+v", e)
		}
	}
}
