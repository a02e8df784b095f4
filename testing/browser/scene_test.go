package browser

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
)

// scene is a job whose events a test makes up, on a clock of its own.
type scene struct {
	job     *timeline.Job
	at      time.Time
	epoch   uint64
	steps   int64
	members []int // indices of peers
	hosts   []string
	slow    map[int]float64 // factors of the time of a peer's computing
	decay   float64         // steps in which the loss falls to a third
	random  *rand.Rand
}

// newScene returns the start of a job of n peers on the hosts.
func newScene(n int, hosts ...string) *scene {
	s := &scene{job: timeline.New(), at: time.Date(2030, 5, 6, 14, 28, 0, 0, time.UTC), hosts: hosts, slow: make(map[int]float64), decay: 120, random: rand.New(rand.NewPCG(1, 2))}
	settings := map[string]string{"seed": "1", "lr": "0.1"}
	s.add(event.NoPeer, event.Job{Job: "mnist-boixb", Program: "./train", Args: []string{"--data", "data"}, Elrun: "0.2.0", Settings: settings, Steps: 2000})
	for i := range n {
		s.hello(i)
	}
	s.at = s.at.Add(400 * time.Millisecond)
	s.view("start")
	return s
}

// id returns the short ID of a peer.
func id(i int) string {
	const letters = "BJ5fQmZ1vPq7DGjR"
	return fmt.Sprintf("%c%c%05d%c", letters[i%16], letters[(i/16+3)%16], 10007*(i+1)%99991, letters[(i+7)%16])
}

// add adds an event of a peer, now.
func (s *scene) add(i int, b event.Body) {
	e := event.Event{Time: s.at, Index: i, Epoch: s.epoch, Step: s.steps, Body: b}
	if i != event.NoPeer {
		e.Peer = id(i)
	}
	s.job.Add(e)
}

// hello adds a peer that is about to be a member.
func (s *scene) hello(i int) {
	host := s.hosts[i%len(s.hosts)]
	s.add(i, event.Member{Who: id(i), WhoIndex: i, Host: host, Launcher: "L", PID: 4000 + i, Began: s.at, OS: "linux", Arch: "amd64", Cores: 4})
	s.members = append(s.members, i)
}

// view begins the next view.
func (s *scene) view(reason string) {
	s.epoch++
	var ids []string
	for _, i := range s.members {
		ids = append(ids, id(i))
	}
	for _, i := range s.members {
		s.add(i, event.View{Members: ids, Reason: reason})
	}
}

// kill kills a peer.
func (s *scene) kill(i int) {
	s.add(i, event.Exit{PID: 4000 + i, Status: -1, Signal: 9, RanS: 10})
	s.members = slices.DeleteFunc(s.members, func(j int) bool { return i == j })
	s.at = s.at.Add(300 * time.Millisecond)
	s.view("lost")
	for _, j := range s.members {
		s.add(j, event.Lost{Who: id(i), Cause: "exit", DetectMS: 35})
	}
	s.add(event.NoPeer, event.Note{Text: fmt.Sprintf("epoch %d: peer %d (%s) is lost: killed by signal 9, noticed after 35 ms; %d peers go on", s.epoch, i, id(i), len(s.members))})
}

// join adds a member.
func (s *scene) join(i int) {
	s.hello(i)
	s.at = s.at.Add(200 * time.Millisecond)
	s.view("join")
	s.add(event.NoPeer, event.Note{Text: fmt.Sprintf("epoch %d: %s@%s has joined with 3.1 MiB of state in 412 ms", s.epoch, id(i), s.hosts[i%len(s.hosts)])})
}

// train adds n steps.
func (s *scene) train(n int) {
	for range n {
		s.steps++
		begun := s.at
		longest, last := 0.0, s.members[0]
		computes := make(map[int]float64)
		for _, i := range s.members {
			ms := 60 * (1 + 0.1*s.random.Float64())
			if f := s.slow[i]; f > 0 {
				ms *= f
			}
			if computes[i] = ms; ms > longest {
				longest, last = ms, i
			}
		}
		s.at = s.at.Add(time.Duration((longest + 15) * 1e6))
		loss := 2.3*math.Exp(-float64(s.steps)/s.decay) + 0.08 + 0.02*s.random.Float64()
		for k, i := range s.members {
			e := event.Step{Microbatches: [][2]int{{k, k + 1}}, ShareSamples: 16, Samples: 16 * len(s.members), Of: 2000, Loss: loss, StepMS: longest + 15, ComputeMS: computes[i], PredictedMS: 70}
			e.Began, e.WaitMS, e.ReduceMS, e.ApplyMS, e.CommitMS, e.LR = begun, longest-computes[i], 9, 4, 2, 0.1
			if i != last {
				e.WaitFor = id(last)
			}
			s.add(i, e)
		}
		if s.steps%50 == 0 {
			accuracy, score := 1-0.5*math.Exp(-float64(s.steps)/200), loss*1.1
			s.add(s.members[0], event.Eval{Set: "test", Samples: 10000, Accuracy: &accuracy, Loss: &score, MS: 30})
		}
		if s.steps%40 == 0 {
			for _, i := range s.members {
				s.measure(i)
			}
		}
	}
}

// measure tells of the use of a peer, and of its paths.
func (s *scene) measure(i int) {
	cpu := s.at.Sub(time.Date(2030, 5, 6, 14, 28, 0, 0, time.UTC)).Seconds() * (0.9 + float64(i%4)/40)
	s.add(i, event.Usage{CPUS: cpu, RSS: int64(1+i%3) << 29, Sent: map[string]int64{"direct": s.steps * 1e6}, Received: map[string]int64{"direct": s.steps * 1e6}})
	for _, j := range s.members {
		switch {
		case i == j:
		case s.hosts[i%len(s.hosts)] == s.hosts[j%len(s.hosts)]:
			s.add(i, event.Path{Who: id(j), Kind: "shm"})
		default:
			s.add(i, event.Path{Who: id(j), Kind: "direct"})
		}
	}
}

// stall lets all wait for a peer.
func (s *scene) stall(culprit int, ms int) {
	s.at = s.at.Add(time.Duration(ms) * time.Millisecond)
	for _, i := range s.members {
		if i != culprit {
			s.add(i, event.Stall{Culprit: id(culprit), Phase: "has not entered the call, busy: reading shard 4", What: "bucket 3 of 7", SinceMS: float64(ms)})
		}
	}
}

// churned is a job with a slow peer, a kill, a join and a stall at its end.
func churned() *scene {
	s := newScene(4, "lab1", "lab1", "lab3", "home")
	s.slow[3] = 1.4
	s.train(200)
	s.kill(0)
	s.train(120)
	s.join(4)
	s.train(150)
	s.stall(2, 1400)
	return s
}

// finish ends a job.
func (s *scene) finish() {
	accuracy, loss := 0.9793, 0.0834
	for _, i := range s.members {
		s.add(i, event.Done{Steps: s.steps, Peers: len(s.members), Accuracy: &accuracy, Loss: &loss, SHA256: "bfbd68394f2f5c21a0a0"})
	}
}
