package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

// leaver is a program of the documents in the hands of a user: it says that it is finished, and where it saves the result, after
// its only check of errors.
type leaver struct {
	path string
	of   int64 // its steps
}

// finishedLine is what a leaver prints as finished. It also writes a file with this name.
const finishedLine = "finished, saved the model"

// leavers returns the programs of the README (with the main function of the quickstart), of go doc trainer, and of the quickstart.
// Each step takes a while, and each peer saves the model in the folder of the environment variable E2E_FINISH.
func leavers(t *testing.T) map[string]leaver {
	t.Helper()
	page := readPage(t, "../../docs/quickstart.md").files
	const steps = 400
	make := func(name, text string, of int64, changes ...string) leaver {
		changes = append(changes, "\t\"log\"\n", "\t\"log\"\n\t\"os\"\n\t\"path/filepath\"\n\t\"time\"\n")
		for i := 0; i < len(changes); i += 2 {
			if strings.Count(text, changes[i]) != 1 {
				t.Fatalf("the program %s does not have %q once", name, changes[i])
			}
			text = strings.Replace(text, changes[i], changes[i+1], 1)
		}
		// The last line of output is what a user replaces by a save.
		at := strings.LastIndex(text, "fmt.Printf(")
		end := at + strings.Index(text[at:], "\n")
		text = text[:end] + fmt.Sprintf(`
	if err := os.WriteFile(filepath.Join(os.Getenv("E2E_FINISH"), os.Getenv("ELRUN_INDEX")), nil, 0o600); err != nil {
		log.Fatal(err)
	}
	fmt.Println(%q)`, finishedLine) + text[end:]
		return leaver{process.UserProgram(t, "leaver-"+name, text), of}
	}
	const pause = "time.Sleep(5 * time.Millisecond)\n\t"
	return map[string]leaver{
		"README": make("readme", page["my/line/main.go"], steps, "batch, rate = 300,", fmt.Sprintf("batch, rate = %d,", steps),
			"sum := make([]float64, len(w))", pause+"sum := make([]float64, len(w))"),
		"go doc trainer": make("doc", programOf(t, "trainer"), 5*80, "Passes: 40", "Passes: 80",
			"grad := b.Grad(0)", pause+"grad := b.Grad(0)"),
		"quickstart": make("quickstart", page["my/trained/main.go"], 10*40, "Passes: 30", "Passes: 40",
			"sum := b.Grad(0)", pause+"sum := b.Grad(0)"),
	}
}

// leaving is one way in which a job of three peers, or a peer, is asked to leave, or ends otherwise.
type leaving struct {
	// do acts on the job when it runs.
	do func(t *testing.T, e *elrun, s launch.Status)
	// status is the exit status of elrun. says are regular expressions of what elrun says; S is the number of steps.
	status int
	says   []string
	// finished is the number of peers that finish.
	finished int
	// dies means that a peer is killed; otherwise the job has a restart, which must not be used.
	dies bool
}

// leavings are all the ways.
func leavings() map[string]leaving {
	signal := func(t *testing.T, sig syscall.Signal, members ...launch.MemberStatus) {
		for _, m := range members {
			process.Signal(t, m.PID, sig)
		}
	}
	return map[string]leaving{
		"to its end": {func(*testing.T, *elrun, launch.Status) {}, 0, []string{`^done steps=S peers=3 `}, 3, false},
		"stop": {func(t *testing.T, e *elrun, _ launch.Status) { e.stop(t, "3") }, 0,
			[]string{`^elrun: the job was stopped at step \d+ of S: it has no result$`, `^\[\d\].* after step \d+ of S: .*left as asked`}, 0, false},
		"scale": {func(t *testing.T, e *elrun, _ launch.Status) {
			if _, errors, status := process.Command(t, "scale", e.job.Name, "2"); status != 0 {
				t.Errorf("scale: status %d, %s", status, errors)
			}
		}, 0, []string{`^\[2\].* after step \d+ of S: .*left as asked`, `^elrun: .*peer 2 \(\w+\) has left after step \d+ \(asked\); 2 peers go on`, `^done steps=S peers=2 `}, 2, false},
		"SIGTERM to a peer": {func(t *testing.T, e *elrun, s launch.Status) { signal(t, syscall.SIGTERM, s.Members[1]) }, 0,
			[]string{`^elrun: .* has left after step \d+ \(asked\); 2 peers go on`, `^done steps=S peers=2 `}, 2, false},
		"SIGTERM to all peers": {func(t *testing.T, e *elrun, s launch.Status) { signal(t, syscall.SIGTERM, s.Members...) }, 0,
			[]string{`^elrun: the job was stopped at step \d+ of S: it has no result$`}, 0, false},
		"SIGTERM to elrun": {func(t *testing.T, e *elrun, _ launch.Status) { e.Signal(t, syscall.SIGTERM) }, 143, nil, 0, false},
		"kill": {func(t *testing.T, e *elrun, s launch.Status) { signal(t, syscall.SIGKILL, s.Members[1]) }, 0,
			[]string{`^elrun: .* is lost: it was killed`, `^done steps=S peers=2 `, `^elrun: the job finished, but before its end peer`}, 2, true},
		"kill, then stop": {func(t *testing.T, e *elrun, s launch.Status) {
			signal(t, syscall.SIGKILL, s.Members[1])
			e.running(t, 2, 1)
			e.stop(t, "2")
		}, 0, []string{`^elrun: the job was stopped at step \d+ of S: it has no result$`}, 0, true},
		"SIGTERM to two peers, kill of the last one": {func(t *testing.T, e *elrun, s launch.Status) {
			signal(t, syscall.SIGTERM, s.Members[0], s.Members[2])
			e.running(t, 1, 1)
			signal(t, syscall.SIGKILL, s.Members[1])
		}, 1, []string{`^elrun: the job did not finish; likely cause: peer \d \(pid \d+\) was killed`}, 0, true},
	}
}

// A program that only checks the errors of elrun gets everything right: the status of elrun says whether the job has failed,
// a peer that was asked to leave is neither a failure nor started again, and no peer saves an unfinished model.
func TestLeave(t *testing.T) {
	for program, p := range leavers(t) {
		for way, l := range leavings() {
			t.Run(program+"/"+way, func(t *testing.T) { l.test(t, p) })
		}
	}
}

func (l leaving) test(t *testing.T, p leaver) {
	e, folder := &elrun{job: process.NewJob(t)}, t.TempDir()
	restarts := map[bool]string{true: "0", false: "1"}[l.dies]
	e.launch(t, []string{"run", "-n", "3", "--restart", restarts, "--name", e.job.Name, "--listen", listen(), p.path}, finishVariable+"="+folder)
	if l.finished < 3 {
		l.do(t, e, e.running(t, 3, 5))
	}
	if status := e.Wait(t); status != l.status {
		t.Errorf("elrun ended with status %d, want %d", status, l.status)
	}
	out := e.Out.String() + e.Err.String()
	for _, say := range l.says {
		say = "(?m)" + strings.ReplaceAll(say, "S", strconv.FormatInt(p.of, 10))
		if !regexp.MustCompile(say).MatchString(out) {
			t.Errorf("nothing matches %s in\n%s", say, process.Tail(out, 4000))
		}
	}
	saved, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(saved) != l.finished {
		t.Errorf("%d models were saved (%v), want %d", len(saved), err, l.finished)
	}
	if said := strings.Count(out, "] "+finishedLine+"\n"); said != l.finished {
		t.Errorf("%d peers say that they have finished, want %d", said, l.finished)
	}
	if done := strings.Count("\n"+out, "\ndone steps="); done != min(1, l.finished) {
		t.Errorf("%d results", done)
	}
	if strings.Contains(out, "is started again") {
		t.Errorf("a peer was started again:\n%s", process.Tail(out, 4000))
	}
	e.job.CheckGone(t)
}
