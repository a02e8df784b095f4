package attack

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
	"github.com/elrun/elrun/transport/ticket"
)

// job is a running job of elrun.
type job struct {
	*process.Job
	*process.Process // the elrun of the job
	log              *process.Log
	stop             string // path of the file that ends the job
	size             int
}

// startJob starts a job of the given size with flags of elrun, and waits until it trains.
func startJob(t *testing.T, size int, flags ...string) *job {
	t.Helper()
	dir := t.TempDir()
	j := &job{Job: process.NewJob(t), log: process.NewLog(t, filepath.Join(dir, "events")), stop: filepath.Join(dir, "stop"), size: size}
	args := append([]string{"run", "-n", strconv.Itoa(size), "--name", j.Name, "--listen", "local", "--events", j.log.Path}, flags...)
	words := append([]string{process.Elrun()}, append(args, process.Self(t))...)
	if cpus := flag.Lookup("cpus").Value.String(); cpus != "" {
		words = append([]string{"taskset", "-c", cpus}, words...)
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), stepsVariable+"=200", stopVariable+"="+j.stop)
	j.Process = j.Job.Start(t, cmd)
	j.Until(t, "the job to train", func() bool { return strings.Count(j.Out.String(), "entered epoch=1 ") == size })
	return j
}

// ticket returns a new ticket of the job.
func (j *job) ticket(t *testing.T, flags ...string) ticket.Ticket {
	t.Helper()
	out, says, status := process.Command(t, append([]string{"ticket", j.Name}, flags...)...)
	if status != 0 {
		t.Fatal(says)
	}
	k, err := ticket.Parse(out)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// end makes the job end, and waits for its end.
func (j *job) end(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(j.stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j.Wait(t)
}

// finish lets the job end, and checks that the attacks had no effect. The members stay the same
// until all leave at the end, the result contains all steps, and no process remains.
func (j *job) finish(t *testing.T) {
	t.Helper()
	j.end(t)
	if status := j.Status(); status != 0 {
		t.Errorf("status %d", status)
	}
	found := regexp.MustCompile(`result steps=(\d+) hash=(\w+) (.*)`).FindAllStringSubmatch(j.Out.String(), -1)
	if len(found) != j.size {
		t.Errorf("%d of %d members have a result", len(found), j.size)
	}
	for _, f := range found {
		steps, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil || f[2] != result(int64(j.size), steps) {
			t.Errorf("wrong result: %s", f[0])
		}
	}
	if len(found) > 0 && long() {
		t.Logf("%s steps: %s", found[0][1], found[0][3])
	}
	j.checkLog(t)
	j.CheckGone(t)
}

// checkLog searches the log for effects of the attacks.
func (j *job) checkLog(t *testing.T) {
	t.Helper()
	for _, e := range j.log.Read(t).Events {
		switch body := e.Body.(type) {
		case event.Lost, event.Fenced, event.Quorum, event.Join, event.Resync:
			t.Errorf("%+v", e)
		case event.View:
			if body.Reason != "start" && body.Reason != "leave" && body.Reason != "grant" {
				t.Errorf("%+v", e)
			}
		}
	}
}
