package summary_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/cmd/elrun/summary"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
)

// begun is the begin of the jobs of these tests.
func begun() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }

// churned is a job of three peers of which one is killed, and another one joins from another elrun.
func churned() *timeline.Job {
	j := timeline.New()
	add := func(ms int, peer string, index int, epoch uint64, step int64, b event.Body) {
		j.Add(event.Event{Time: begun().Add(time.Duration(ms) * time.Millisecond), Peer: peer, Index: index, Epoch: epoch, Step: step, Body: b})
	}
	add(0, "", event.NoPeer, 0, 0, event.Job{Job: "mnist", Program: "./mnist"})
	ids := []string{"aaaaaaaa", "bbbbbbbb", "cccccccc"}
	for i, id := range ids {
		add(1, id, i, 0, 0, event.Member{Who: id, WhoIndex: i, Host: "lab1", Launcher: "L", PID: 10 + i, Began: begun()})
		add(100, id, i, 1, 0, event.View{Members: ids, Reason: "start"})
	}
	step := func(end, length int, epoch uint64, n int64, members ...string) {
		for i, id := range members {
			s := event.Step{Microbatches: [][2]int{{i, i + 1}}, ShareSamples: 8, Samples: 8 * len(members), Of: 20, StepMS: float64(length), ComputeMS: float64(length)}
			s.Began = begun().Add(time.Duration(end-length) * time.Millisecond)
			if id == "aaaaaaaa" { // it waits for the second
				s.ComputeMS, s.WaitMS, s.WaitFor = float64(length/2), float64(length-length/2), members[1]
			}
			add(end, id, i, epoch, n, s)
		}
	}
	for n := range 10 {
		step(200+100*n, 100, 1, int64(n+1), ids...)
	}
	add(1110, "cccccccc", 2, 0, 0, event.Exit{PID: 12, Status: -1, Signal: 9})
	for i, id := range ids[:2] {
		add(1200, id, i, 2, 0, event.View{Members: ids[:2], Reason: "lost"})
		add(1200, id, i, 2, 0, event.Lost{Who: "cccccccc", Cause: "exit", DetectMS: 40})
	}
	step(1500, 300, 2, 11, ids[:2]...)
	add(1510, "", event.NoPeer, 0, 0, event.Member{Who: "dddddddd", Host: "lab2", Launcher: "M"})
	for i, id := range ids[:2] {
		add(1520, id, i, 3, 0, event.View{Members: []string{"aaaaaaaa", "bbbbbbbb", "dddddddd"}, Reason: "join"})
	}
	step(1700, 100, 3, 12, ids[:2]...)
	accuracy, loss := 0.9669, 0.1175
	for i, id := range ids[:2] {
		add(1710, id, i, 3, 12, event.Done{Steps: 12, Peers: 3, Accuracy: &accuracy, Loss: &loss, SHA256: "bfbd6839"})
	}
	return j
}

func TestOf(t *testing.T) {
	const want = `mnist  finished  12 of 20 steps in 1.7 s  accuracy 0.9669  loss 0.1175  sha256 bfbd6839
goodput 68 % of 3 peers' 1.7 s: waiting 15 % (15 % for peer 1 on lab1), changes 0.4 s, start 0.3 s
2 changes of the membership in 200.0 ms: lost 1 (peer 2 killed by signal 9 (killed), noticed after 40 ms), joined 1
waited for peer 1 (bbbbbbbb) on lab1 700.0 ms computing; peer 2 (cccccccc) on lab1 200.0 ms absent
slowest step 11: 300.0 ms, the mean is 116.7 ms
the logs lack: the events of 1 peer are in the log of another elrun (dddddddd@lab2); 2 lines are no events; 1 log is cut off
`
	if got := summary.Of(churned().Snapshot(), timeline.Lines{Malformed: 2, Cut: 1}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A log of which nothing is known gives one line, and texts of others cannot harm a terminal.
func TestOfLittle(t *testing.T) {
	if got := summary.Of(timeline.New().Snapshot(), timeline.Lines{}); strings.Count(got, "\n") != 1 {
		t.Errorf("got %q", got)
	}
	j := timeline.New()
	j.Add(event.Event{Time: begun(), Index: event.NoPeer, Body: event.Job{Job: "a\x1b[2Jb\nc"}})
	if got := summary.Of(j.Snapshot(), timeline.Lines{}); strings.ContainsAny(got, "\x1b") || strings.Count(got, "\n") != 1 {
		t.Errorf("got %q", got)
	}
}

// A job of one peer without a change.
func ExampleOf() {
	j := timeline.New()
	began := begun()
	j.Add(event.Event{Time: began, Index: event.NoPeer, Body: event.Job{Job: "hello"}})
	for n := range int64(100) {
		j.Add(event.Event{Time: began.Add(100 * time.Millisecond), Peer: "a", Epoch: 1, Step: n + 1,
			Body: event.Step{ComputeMS: 100, StepMS: 100, Times: event.Times{Began: began}}})
		began = began.Add(100 * time.Millisecond)
	}
	fmt.Print(summary.Of(j.Snapshot(), timeline.Lines{Events: 101}))
	// Output:
	// hello  without an end in the log  100 steps in 10s
	// goodput 100 % of 1 peer's 10s
	// slowest step 1: 100.0 ms, the mean is 100.0 ms
}

// Two runs of which one is slower, has another batch, and goes further.
func TestCompare(t *testing.T) {
	run := func(steps, length, batch int) timeline.Snapshot {
		j := timeline.New()
		add := func(ms int, index int, step int64, b event.Body) {
			e := event.Event{Time: begun().Add(time.Duration(ms) * time.Millisecond), Index: index, Epoch: 1, Step: step, Body: b}
			if index >= 0 {
				e.Peer = "aaaaaaaa"
			}
			j.Add(e)
		}
		add(0, event.NoPeer, 0, event.Job{Job: "mnist", Launcher: fmt.Sprint(batch), Program: "./mnist", Settings: map[string]string{"seed": "1", "batch": fmt.Sprint(batch)}})
		add(0, 0, 0, event.Member{Who: "aaaaaaaa", Host: "lab1", Launcher: "L", Began: begun()})
		add(0, 0, 0, event.View{Members: []string{"aaaaaaaa"}, Reason: "start"})
		for n := 1; n <= steps; n++ {
			s := event.Step{Microbatches: [][2]int{{0, 1}}, ShareSamples: batch, Samples: batch, Loss: 1 / float64(n), StepMS: float64(length), ComputeMS: float64(length)}
			s.Began = begun().Add(time.Duration((n-1)*length) * time.Millisecond)
			add(n*length, 0, int64(n), s)
		}
		loss := 1.0
		add(steps*length, 0, int64(steps), event.Done{Steps: int64(steps), Peers: 1, Loss: &loss, SHA256: fmt.Sprintf("%064d", batch)})
		return j.Snapshot()
	}
	const want = `                    fast          slow
end                 finished      finished
steps               8             16
time                800.0 ms      3.2 s
peers               1             1
goodput             100 %         100 %
changes             0             0
samples/s           80            40
sha256              000000000000  000000000000
loss at step 2      0.5           0.5
loss at step 4      0.25          0.25
loss at step 6      0.1667        0.1667
loss at step 8      0.125         0.125
loss at 16 samples  0.5           0.5
loss at 32 samples  0.25          0.25
loss at 48 samples  0.1667        0.1667
loss at 64 samples  0.125         0.125
loss at 200.0 ms    0.5           1
loss at 400.0 ms    0.25          0.5
loss at 600.0 ms    0.1667        0.3333
loss at 800.0 ms    0.125         0.25
`
	if got := summary.Compare([]summary.Run{{Name: "fast", Job: run(8, 100, 8)}, {Name: "slow", Job: run(16, 200, 8)}}).String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	differ := summary.Compare([]summary.Run{{Name: "a", Job: run(8, 100, 8)}, {Name: "b\n", Job: run(8, 100, 16)}, {Name: "none"}}).String()
	if !regexp.MustCompile(`(?m)^batch +8 +16$`).MatchString(differ) || strings.Contains(differ, "loss at") || strings.Contains(differ, "seed 1") {
		t.Errorf("got\n%s", differ)
	}
}

// A job that was asked to stop has not failed, also if it has lost a peer before.
func TestOutcome(t *testing.T) {
	asked, failed, killed := event.Exit{Status: 1, Asked: true}, event.Exit{Status: 1}, event.Exit{Status: -1, Signal: 9}
	for _, c := range []struct {
		want  string
		lost  bool // the first of the peers
		exits []event.Exit
	}{
		{"stopped", false, []event.Exit{asked, asked}},
		{"stopped", true, []event.Exit{killed, asked}},
		{"failed", true, []event.Exit{killed, failed}},
		{"failed", false, []event.Exit{asked, killed}},
		{"ended without a result", true, []event.Exit{killed, {}}},
		{"without an end in the log", true, []event.Exit{killed}},
	} {
		j := timeline.New()
		add := func(index int, epoch uint64, b event.Body) {
			j.Add(event.Event{Time: begun(), Peer: []string{"aaaaaaaa", "bbbbbbbb"}[index], Index: index, Epoch: epoch, Body: b})
		}
		for i := range 2 {
			add(i, 1, event.View{Members: []string{"aaaaaaaa", "bbbbbbbb"}, Reason: "start"})
		}
		if c.lost {
			add(1, 2, event.View{Members: []string{"bbbbbbbb"}, Reason: "lost"})
			add(1, 2, event.Lost{Who: "aaaaaaaa", Cause: "exit"})
		}
		for i, exit := range c.exits {
			add(i, 1, exit)
		}
		if text := summary.Of(j.Snapshot(), timeline.Lines{}); !strings.Contains(text, "  "+c.want+"  ") {
			t.Errorf("want %q:\n%s", c.want, text)
		}
	}
}
