package top_test

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch"
)

// noon is the time of the snapshots of these tests.
func noon() time.Time { return time.Date(2030, 1, 2, 14, 29, 10, 0, time.UTC) }

// mnist is a job of six peers on three hosts, one of them slow and one parked, after a death.
func mnist() timeline.Snapshot {
	s := timeline.Snapshot{Seq: 9000, Begin: noon().Add(-5 * time.Minute), Time: noon(), Job: event.Job{Job: "mnist-boixb", Steps: 3540}, Epoch: 7, Views: 7}
	s.Progress = timeline.Progress{Step: 2226, Of: 3540, Loss: 0.0834, SamplesPerS: 5632, StepsPerS: 44, LeftMS: 252_000}
	for i, p := range []struct {
		id, host, path string
		share          int
		speed, ms      float64
		waited         time.Duration
	}{
		{"J5jouZhE", "lab1", "direct,shm", 28, 1480, 52.5, 2 * time.Second}, {"fSF8e533", "lab1", "direct,shm", 27, 1455, 53.1, time.Second},
		{"B7C22n75", "lab3", "direct", 10, 412, 55.2, 61 * time.Second}, {"3v5pqDGj", "home", "p2p", 7, 301, 54.0, 19 * time.Second},
		{"91f8TrBW", "lab1", "direct,shm", 28, 1984, 50.9, 0}, {"mqPZaHoD", "home", "p2p", 0, 0, 0, 0},
	} {
		x := timeline.Peer{ID: p.id, Index: i, Launcher: "elrun " + p.host, Host: p.host, Machine: "machine of " + p.host, Site: "campus", PID: 4000 + i, Rank: i,
			State: timeline.StateRunning, Heard: true, Begin: s.Begin, End: s.Time, Share: p.share, SamplesPerS: p.speed, Steps: 2226, Samples: int64(p.share) * 8904,
			Path: p.path, CPU: 0.99 - float64(i)/100, CPUS: 280, RSS: 1_150_000_000 - int64(i)*50_000_000,
			Sent: map[string]int64{"direct": 2_000_000_000, "shm": 900_000}, Received: map[string]int64{"direct": 1_900_000_000}}
		x.Last = timeline.LastStep{Step: 2226, StepMS: 57.3, PredictedMS: p.ms - 2.2, ComputeMS: p.ms, WaitMS: 55.2 - p.ms, WaitFor: "B7C22n75", ReduceMS: 1.1, ApplyMS: 0.6, CommitMS: 0.4}
		x.Uses[timeline.Useful], x.Uses[timeline.Wait], x.Uses[timeline.Communicate], x.Uses[timeline.Apply] = 260*time.Second, 20*time.Second, 12*time.Second, 3*time.Second
		x.Uses[timeline.Change], x.Uses[timeline.Other], x.WaitedFor.Computing = 3*time.Second, 2*time.Second, p.waited
		x.Lengths[4], x.Lengths[5] = 2200, 26
		x.Strip = timeline.Strip{Begin: s.Begin, WidthMS: 2000, Uses: "bb" + strings.Repeat("uuuw", 25) + "vvvv" + strings.Repeat("uuuu", 11)}
		s.Peers = append(s.Peers, x)
	}
	s.Peers[2].State, s.Peers[2].WaitedFor.Absent, s.Peers[2].Links = timeline.StateWaiting, 1500*time.Millisecond, map[string]float64{"fSF8e533": 117.5, "3v5pqDGj": 6.2}
	s.Peers[3].Links = map[string]float64{"B7C22n75": 5.9}
	s.Peers[5].State, s.Peers[5].Rank, s.Peers[5].Last = timeline.StateParked, -1, timeline.LastStep{}
	gone := timeline.Peer{ID: "Zj6btguE", Index: 0, Launcher: "elrun lab1", Host: "lab1", Machine: "machine of lab1", PID: 3999, Rank: -1, State: timeline.StateLost, Cause: "exit",
		Exit: &event.Exit{PID: 3999, Status: -1, Signal: 9, RanS: 31}}
	s.Peers = append(s.Peers, gone)
	for _, p := range s.Peers {
		for u, d := range p.Uses {
			s.Goodput.Uses[u] += d
		}
	}
	s.Goodput.Peers, s.Goodput.Ratio = 6, s.Goodput.Uses.Goodput()
	loss, accuracy := 0.11, 0.967
	s.Evals = []timeline.Eval{{Time: noon().Add(-time.Minute), Step: 1100, Set: "test", Accuracy: &loss}, {Time: noon().Add(-2 * time.Second), Step: 2200, Set: "test", Samples: 10000, Accuracy: &accuracy, Loss: &loss, MS: 212}}
	s.Checkpoints = []timeline.Saved{{Time: noon().Add(-30 * time.Second), Step: 2000, Path: "run/step-2000", MS: 84}}
	s.Recent = []timeline.View{{Epoch: 2, Time: noon().Add(-20 * time.Second), Reason: "lost", Members: []string{"fSF8e533", "B7C22n75"},
		Lost: []timeline.Loss{{Who: "Zj6btguE", Cause: "exit", DetectMS: 272.6}}, CostMS: 600, Recomputed: 6}}
	for i, text := range []string{"epoch 2: peer 0 (Zj6btguE) is lost: killed by signal 9, after 272.6 ms", "epoch 3: peer 0 (J5jouZhE) has joined; 3 peers go on",
		"peer 5 (mqPZaHoD) is parked: a step would take 3.8 ms with the newcomer and takes 3.5 ms without", "epoch 6: 91f8TrBW@lab1 has joined with 3.1 MiB of state in 412 ms"} {
		s.Messages = append(s.Messages, timeline.Message{Time: noon().Add(time.Duration(5*i-20) * time.Second), Text: text})
	}
	var points []timeline.Point
	for i := range 100 {
		points = append(points, timeline.Point{First: int64(20*i + 1), Last: int64(20*i + 20), Loss: 2.3*math.Exp(-float64(i)/25) + 0.05})
	}
	s.Series.BySteps = []timeline.Level{{Width: 20, Points: points}}
	return s
}

// stalled is mnist while a peer is waited for.
func stalled() timeline.Snapshot {
	s := mnist()
	s.Stall = &timeline.Stall{Time: noon().Add(-400 * time.Millisecond), Culprit: "B7C22n75", Phase: "has not entered the call", What: "bucket 3 of step 2227", SinceMS: 1000}
	return s
}

// hostile is a job whose names would change the screen of a terminal, or have wide and combined characters.
func hostile() timeline.Snapshot {
	s := stalled()
	s.Job.Job = "\x1b[2Jjob"
	for i, name := range []string{"\x1b]0;title\x07\x1b[31m", "日本語のホスト名はとても長い日本語のホスト名", "e\u0301e\u0301e\u0301", "👩‍👩‍👧‍👦❤️🇩🇪", "a\nb\rc\td", "\u202eabc\xff\xfe"} {
		s.Peers[i].Host, s.Peers[i].Site, s.Peers[i].ID = name, name, name
		s.Peers[i].State, s.Peers[i].Path = name, name
		s.Peers[i].Last.WaitFor, s.Peers[i].Launcher = name, name
		s.Peers[i].Links = map[string]float64{name: 1}
		s.Messages[i%4].Text = name
	}
	s.Stall.Culprit, s.Stall.Phase = s.Peers[0].ID, "\x1b[1;1H"
	return s
}

// crowd is a job of n peers.
func crowd(n int) timeline.Snapshot {
	s := mnist()
	for i := len(s.Peers); i < n; i++ {
		p := s.Peers[i%5]
		p.Index, p.PID, p.Rank, p.ID, p.WaitedFor = i, 5000+i, i, fmt.Sprintf("id%06d", i), timeline.Waited{Computing: time.Duration(i) * time.Millisecond}
		s.Peers = append(s.Peers, p)
	}
	return s
}

// listed is a list of jobs.
func listed() []launch.Status {
	member := func(state string) launch.MemberStatus { return launch.MemberStatus{State: state} }
	g := mnist().Goodput
	return []launch.Status{
		{Job: "cocoa", Epoch: 1, Step: 88, Progress: launch.Progress{SamplesPerS: 1200}, Members: []launch.MemberStatus{member("running"), member("running")}, Goodput: &g},
		{Job: "mnist-boixb", Epoch: 7, Step: 2226, Of: 3540, Progress: launch.Progress{SamplesPerS: 5632, LeftMS: 252_000},
			Members: []launch.MemberStatus{member("running"), member("waiting"), member("running")}, Goodput: &g, WaitingFor: []string{"B7C22n75"}},
		{Job: "new", Members: []launch.MemberStatus{member("joining")}},
	}
}
