package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch"
)

// shown returns the output of write.
func shown(t *testing.T, write func(*strings.Builder) error) string {
	t.Helper()
	var b strings.Builder
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWriteStatus(t *testing.T) {
	for _, c := range []struct {
		name string
		s    launch.Status
		want string
	}{
		{"balanced", launch.Status{
			Job: "m", Epoch: 2, Step: 44, Of: 354, Progress: launch.Progress{Loss: 0.51234, SamplesPerS: 13701.4, StepsPerS: 26.8, ElapsedMS: 1700, LeftMS: 11600},
			Batch: 1024, BatchSince: 40, Balanced: &launch.Balanced{Step: 41, Old: []int{16, 16}, Shares: []int{26, 6}, Reason: "rank 1: 16 to 6"},
			Members: []launch.MemberStatus{
				{ID: "cMZYjyrm", Index: 0, Host: "vm", Rank: 0, State: "running", Share: 26, Speed: 5973.4, ComputeMS: 29.52,
					CommMS: 7.9, StepMS: 37.4, PredictedMS: 30, Path: "p2p"},
				{ID: "ryML6ND3", Index: 2, Host: "vm", Rank: 1, State: "running", Share: 6, Speed: 1402, ComputeMS: 31.4,
					CommMS: 4.5, StepMS: 36.4, PredictedMS: 29.1, Path: "p2p"},
			}}, `
job m  epoch 2  step 44/354  waiting for -
loss 0.5123  13701 samples/s  2s elapsed  12s left
step time 37.4 ms, predicted 35.0 ms (+7 %)
batch 1024 since step 40
shares 16 16 -> 26 6 since step 41: rank 1: 16 to 6
RANK  INDEX  ID        HOST  STATE    SHARE  SAMPLES/S  COMP MS  PRED MS  COMM MS  PATH  SEEN
0     0      cMZYjyrm  vm    running  26     5973       29.5     30.0     7.9      p2p   now
1     2      ryML6ND3  vm    running  6      1402       31.4     29.1     4.5      p2p   now
`},
		{"a loop that reports no steps, with one that does not answer and one that joins", launch.Status{
			Job: "own", Epoch: 1, WaitingFor: []string{"bbbbbbbb"},
			Members: []launch.MemberStatus{
				{ID: "aaaaaaaa", Index: 0, Host: "vm", Rank: 0, State: "waiting", Path: "p2p"},
				{ID: "bbbbbbbb", Index: 0, Host: "far", Rank: 1, State: "unknown", Path: "direct", SeenMS: 140},
				{ID: "cccccccc", Index: 1, Host: "vm", Rank: -1, State: "joining"},
			}}, `
job own  epoch 1  step -  waiting for bbbbbbbb
RANK  INDEX  ID        HOST  STATE    SHARE  SAMPLES/S  COMP MS  PRED MS  COMM MS  PATH    SEEN
0     0      aaaaaaaa  vm    waiting  -      -          -        -        -        p2p     now
1     0      bbbbbbbb  far   unknown  -      -          -        -        -        direct  0.1 s
-     1      cccccccc  vm    joining  -      -          -        -        -        -       now
`},
		{"a share of nothing is known, a prediction is not", launch.Status{
			Job: "m", Epoch: 1, Step: 3, Progress: launch.Progress{StepsPerS: 0.52, Metrics: map[string]float64{"loss": 0, "a\x1b": 0.12345}}, Balanced: &launch.Balanced{Step: 1, Shares: []int{1, 0}, Reason: "start"},
			Members: []launch.MemberStatus{{ID: "aaaaaaaa", Host: "vm", State: "running", CommMS: 2, StepMS: 2.04, Path: "shm"}}}, `
job m  epoch 1  step 3  waiting for -
a\x1b 0.1235  loss 0  0.5 steps/s
step time 2.0 ms, not predicted
shares 1 0 since step 1: start
RANK  INDEX  ID        HOST  STATE    SHARE  SAMPLES/S  COMP MS  PRED MS  COMM MS  PATH  SEEN
0     0      aaaaaaaa  vm    running  0      -          -        -        2.0      shm   now
`},
	} {
		got := shown(t, func(b *strings.Builder) error { return writeStatus(b, c.s, writePeers) })
		if got != c.want[1:] {
			t.Errorf("%s: got\n%swant\n%s", c.name, got, c.want[1:])
		}
	}
}

// The status of a job with a running elrun says what the time of the peers was used for.
func TestWriteGoodput(t *testing.T) {
	status := launch.Status{
		Job: "m", Epoch: 1, Step: 3, Goodput: &timeline.Goodput{Ratio: 0.5, Peers: 2, WallMS: 20000, Uses: timeline.Uses{timeline.Useful: 20e9, timeline.Wait: 20e9}},
		Stragglers: []timeline.Straggler{{ID: "a", Index: 1, Host: "lab\x1b", Waited: timeline.Waited{Computing: 15e9, Absent: 2e9}},
			{ID: "b", Index: -1, Waited: timeline.Waited{Call: 3e9}}, {ID: "c", Index: 0, Waited: timeline.Waited{Call: 1e6}}}}
	const want = `job m  epoch 1  step 3  waiting for -
goodput 50 % of 2 peers' 20s: waiting 50 %
waited for peer 1 on lab\x1b 15.0 s computing, 2.0 s absent; b 3.0 s in calls
`
	got := shown(t, func(b *strings.Builder) error {
		return writeStatus(b, status, func(io.Writer, []launch.MemberStatus) error { return nil })
	})
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestWriteEnded(t *testing.T) {
	at := time.Date(2000, 1, 1, 12, 0, 0, 0, time.Local)
	for _, c := range []struct {
		s    launch.Status
		want string
	}{
		{launch.Status{Job: "m", Step: 354, Of: 354, Ended: &launch.Ended{Began: at.Add(-72340 * time.Millisecond), At: at, Outcome: "finished",
			Reason: "the job finished, but before its end peer 1 was killed", Result: "done steps=354 peers=3"}}, `
job m  finished with status 0  step 354/354  after 1m12.3s, 10m0s ago (2000-01-01 12:00:00)
the job finished, but before its end peer 1 was killed
done steps=354 peers=3
`},
		{launch.Status{Job: "own", Log: "/a\x1b.jsonl", Ended: &launch.Ended{Began: at.Add(-time.Second), At: at, Status: 1, Outcome: "failed\x1b"}}, `
job own  failed\x1b with status 1  step -  after 1s, 10m0s ago (2000-01-01 12:00:00)
event log /a\x1b.jsonl
`},
	} {
		got := shown(t, func(b *strings.Builder) error { return writeEnded(b, c.s, at.Add(10*time.Minute)) })
		if got != c.want[1:] {
			t.Errorf("got\n%swant\n%s", got, c.want[1:])
		}
	}
}

func TestWriteJobs(t *testing.T) {
	got := shown(t, func(b *strings.Builder) error {
		return writeJobs(b, []launch.Status{
			{Job: "m", Epoch: 4, Step: 20, Of: 40, Members: []launch.MemberStatus{{State: "running"}, {State: "waiting"}}, Goodput: &timeline.Goodput{Ratio: 0.75}},
			{Job: "own-loop", Epoch: 1, WaitingFor: []string{"a", "b"}, Members: make([]launch.MemberStatus, 11)},
			{Job: "starting", Members: []launch.MemberStatus{{State: "joining"}}, Goodput: &timeline.Goodput{}},
		})
	})
	if want := `
JOB       PEERS  EPOCH  STEP  WAITING FOR  GOODPUT  STATE
m         2      4      20    -            75 %     1 running, 1 waiting
own-loop  11     1      -     a,b          -        -
starting  1      -      -     -            -        joining
`; got != want[1:] {
		t.Errorf("got\n%swant\n%s", got, want[1:])
	}
}

func TestWordSeen(t *testing.T) {
	for want, ms := range map[string]float64{"-": -1, "now": 0, "1.3 s": 1290} {
		if got := formatSeen(ms); got != want {
			t.Errorf("%v: %q, want %q", ms, got, want)
		}
	}
}

func TestWordStepTime(t *testing.T) {
	for _, c := range []struct {
		measured, predicted float64
		want                string
	}{
		{37.44, 0, "37.4 ms, not predicted"},
		{50, 40, "50.0 ms, predicted 40.0 ms (+25 %)"},
		{30, 40, "30.0 ms, predicted 40.0 ms (-25 %)"},
		{40, 40, "40.0 ms, predicted 40.0 ms (+0 %)"},
	} {
		if got := formatStepTime(c.measured, c.predicted); got != c.want {
			t.Errorf("%v, %v: %q, want %q", c.measured, c.predicted, got, c.want)
		}
	}
}

func TestWordShares(t *testing.T) {
	many := make([]int, maxShares+1)
	for i := range many {
		many[i] = 5 + i%3
	}
	for _, c := range []struct {
		shares []int
		want   string
	}{
		{nil, ""},
		{[]int{3}, "3"},
		{[]int{3, 0, 12}, "3 0 12"},
		{many, "5-7 of 17 ranks"},
	} {
		if got := formatShares(c.shares); got != c.want {
			t.Errorf("%v: %q, want %q", c.shares, got, c.want)
		}
	}
}

func TestWordStopped(t *testing.T) {
	for _, c := range []struct {
		s    launch.Stopped
		want string
	}{
		{launch.Stopped{Job: "m", Peers: 1, Took: 40 * time.Millisecond}, "stopped job m: 1 peer was asked to end, and was gone 40ms later"},
		{launch.Stopped{Job: "m", Peers: 4, Took: 5260 * time.Millisecond}, "stopped job m: 4 peers were asked to end, and were gone 5.26s later"},
	} {
		if got := formatStopped(c.s); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// hostsOfMany returns a job with n peers on each of two hosts of the same name.
func hostsOfMany(n int) launch.Status {
	s := launch.Status{Job: "m", Epoch: 3, Step: 7}
	for rank := range 2 * n {
		m := launch.MemberStatus{ID: fmt.Sprintf("peer%04d", rank), Host: "vm", Machine: []string{"aaaaaaaaaa", "bbbbbbbbbb"}[rank%2], Site: "x",
			Rank: rank, State: "running", Share: 2, Speed: 10, ComputeMS: 1 + float64(rank), CommMS: 2, StepMS: 4, Path: "direct,shm"}
		if rank == 1 {
			m.State, m.SeenMS = "waiting", 1500
		}
		for other := range 2 * n {
			p := launch.PeerPath{ID: fmt.Sprintf("peer%04d", other), Kind: "shm"}
			if other%2 != rank%2 {
				p.Kind, p.Encrypted, p.Why = "p2p", true, strings.Repeat("the port is closed ", 20)
			}
			if other != rank {
				m.Paths = append(m.Paths, p)
			}
		}
		s.Members = append(s.Members, m)
		s.WaitingFor = append(s.WaitingFor, m.ID)
	}
	return s
}

func TestWriteHosts(t *testing.T) {
	got := shown(t, func(b *strings.Builder) error { return writeStatus(b, hostsOfMany(8), writeHosts) })
	if want := `
job m  epoch 3  step 7  waiting for peer0000,peer0001,peer0002 and 13 more
step time 4.0 ms, not predicted
HOST       SITE  PEERS  STATE                 SHARE  SAMPLES/S  COMP MS  COMM MS  PATH        SEEN
vm/aaaaaa  x     8      running               16     80         15.0     2.0      direct,shm  now
vm/bbbbbb  x     8      1 waiting, 7 running  16     80         16.0     2.0      direct,shm  1.5 s
`; got != want[1:] {
		t.Errorf("got\n%swant\n%s", got, want[1:])
	}
}

func TestWritePaths(t *testing.T) {
	got := shown(t, func(b *strings.Builder) error { return writeStatus(b, hostsOfMany(3), writePaths) })
	why := strings.Repeat("the port is closed ", 8)
	if want := `
job m  epoch 3  step 7  waiting for peer0000,peer0001,peer0002 and 3 more
step time 4.0 ms, not predicted
PAIRS  BETWEEN    AND        PATH  ENCRYPTED  WHY NO BETTER ONE
9      vm/aaaaaa  vm/bbbbbb  p2p   yes        ` + why[:151] + `...
3      vm/aaaaaa  vm/aaaaaa  shm   no         -
3      vm/bbbbbb  vm/bbbbbb  shm   no         -
`; got != want[1:] {
		t.Errorf("got\n%swant\n%s", got, want[1:])
	}
	alone := launch.Status{Job: "m", Members: []launch.MemberStatus{{ID: "a"}}}
	if got := shown(t, func(b *strings.Builder) error { return writeStatus(b, alone, writePaths) }); !strings.Contains(got, "no path is known") {
		t.Errorf("one alone: %s", got)
	}
}

// No line of the status exceeds the limit, whatever the number of peers and in whatever table.
func TestStatusIsNarrow(t *testing.T) {
	s := hostsOfMany(64)
	for range 128 {
		s.Members[0].Host += "x"
	}
	s.Balanced = &launch.Balanced{Step: 1, Shares: make([]int, 128), Reason: strings.Repeat("é", 300)}
	for _, write := range []func(io.Writer, []launch.MemberStatus) error{writeHosts, writePaths, writePeers} {
		for _, line := range strings.Split(shown(t, func(b *strings.Builder) error { return writeStatus(b, s, write) }), "\n") {
			if len(line) > maxLine || !utf8.ValidString(line) {
				t.Errorf("%d bytes: %q", len(line), line)
			}
		}
	}
}

// A probe fails while a job waits, and not before its first step.
func TestHealth(t *testing.T) {
	for _, c := range []struct {
		s    timeline.Snapshot
		want string
		ok   bool
	}{
		{timeline.Snapshot{}, "has committed no step yet", true},
		{timeline.Snapshot{Epoch: 2, Progress: timeline.Progress{Step: 7}}, "goes on: step 7, epoch 2", true},
		{timeline.Snapshot{Progress: timeline.Progress{Step: 7}, Stall: &timeline.Stall{Culprit: "aaaa,bbbb", Phase: "has not entered\nthe call", SinceMS: 1400}},
			"has waited 1s for aaaa,bbbb: has not entered; the call", false},
		{timeline.Snapshot{Quorum: &timeline.Quorum{Present: 1, Needed: 3}, Stall: &timeline.Stall{}}, "waits for enough peers: 1 of 3 are present", false},
	} {
		if line, ok := health(c.s); line != c.want || ok != c.ok {
			t.Errorf("%q, %v, want %q, %v", line, ok, c.want, c.ok)
		}
	}
}
