package flight

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// story makes the records of a session of some ranks.
type story struct{ records []Record }

func newStory(ranks int) *story {
	s := new(story)
	var members []string
	for rank := range ranks {
		members = append(members, fmt.Sprint("id", rank))
	}
	for rank := range ranks {
		s.records = append(s.records, Record{Version: Version, Peer: members[rank], Index: rank, Host: "lab", Taken: time.Unix(100, 0),
			Stacks: fmt.Sprint("goroutines of ", rank), Sessions: []Session{{Epoch: 3, Rank: rank, Members: members}}})
	}
	return s
}

// call adds a call of some ranks.
func (s *story) call(c Call, ranks ...int) *story {
	for _, rank := range ranks {
		r := &s.records[rank]
		c.Epoch, c.Number = 3, uint64(len(r.Calls)+1)
		r.Calls = append(r.Calls, c)
	}
	return s
}

// waits adds a call of some ranks that waits.
func (s *story) waits(c Call, ranks ...int) *story {
	c.Open, c.MS = true, 1500
	return s.call(c, ranks...)
}

// without removes the record of a rank.
func (s *story) without(rank int) *story {
	s.records = slices.Delete(slices.Clone(s.records), rank, rank+1)
	return s
}

func reduce(seq uint32) Call {
	return Call{Seq: seq, Kind: "allreduce", What: "allreduce float32[8] sum", Count: 8}
}

func point(peer int, sends bool) Call {
	return Call{Seq: 4, Kind: "send/recv", What: "send/recv float32[8]", Point: &Point{Peer: peer, Sends: sends}}
}

// knows returns a job that knows one peer.
func knows(p Peer) Job { return Job{Version: Version, Peers: []Peer{p}} }

func TestJudge(t *testing.T) {
	other := reduce(2)
	other.Comm = 1 << 40
	mine := point(-1, false)
	mine.Background = true
	failed := reduce(2)
	failed.Error, failed.Failure, failed.Blames = "collective: peer lost: rank 1: reset", FailurePeer, []int{1}
	short := newStory(2).call(reduce(1), 0, 1)
	short.records[0].Needs = true
	for name, c := range map[string]struct {
		job  Job
		s    *story
		want string // cause, rank, part of the text
	}{
		"nothing":            {Job{}, newStory(3).call(reduce(1), 0, 1, 2), "none -1 3 records show"},
		"no records":         {Job{}, new(story), "none -1 0 records"},
		"short waits":        {Job{}, newStory(2).call(reduce(1), 1).call(Call{Seq: 1, Open: true, MS: 100, Kind: "allreduce", What: "allreduce float32[8] sum", Count: 8}, 0), "none -1 "},
		"absent":             {Job{}, newStory(3).call(reduce(1), 0, 1, 2).waits(reduce(2), 0, 2), "absent 1 rank 1 (peer 1, id1 on lab) has not begun call 2, its last was 1; rank 0 waits 1.5 s in call 2"},
		"absent, of two":     {Job{}, newStory(3).waits(reduce(1), 2), "absent 0 has made no call in this session"},
		"halted":             {knows(Peer{ID: "id1", Index: 1, PID: 77, Halted: true, Error: "x"}), newStory(3).waits(reduce(1), 0, 2).without(1), "stopped 1 is stopped by a signal (SIGSTOP or a debugger): continue process 77"},
		"halted, answers":    {knows(Peer{ID: "id1", Index: 1, PID: 77, Halted: true}), newStory(3).waits(reduce(1), 0, 2), "stopped 1 continue process 77"},
		"ended":              {knows(Peer{ID: "id2", Index: 2, End: "killed by signal 9", Step: 41}), newStory(3).waits(reduce(1), 0).without(2), "lost 2 has ended: killed by signal 9, last step 41"},
		"silent":             {knows(Peer{ID: "id1", Index: 1, Error: "no answer within 2s"}), newStory(2).waits(reduce(1), 0).without(1), "no answer 1 does not answer: no answer within 2s"},
		"unknown":            {Job{}, newStory(2).waits(reduce(1), 0).without(1), "no answer 1 has no record here"},
		"absent, not silent": {knows(Peer{ID: "id1", Error: "no answer within 2s"}), newStory(3).waits(reduce(1), 0).without(1), "absent 2 "},
		"through another":    {Job{}, newStory(3).waits(reduce(1), 0).waits(point(2, false), 1), "absent 2 has made no call in this session; rank 0 waits 1.5 s in call 1"},
		"deadlock of points": {Job{}, newStory(2).waits(point(1, false), 0).waits(point(0, false), 1), "deadlock 0 "},
		"two communicators":  {Job{}, newStory(3).call(other, 0, 1, 2).waits(reduce(3), 0, 2).waits(Call{Comm: 1 << 40, Seq: 3, Kind: "barrier", What: "barrier"}, 1), "deadlock 1 rank 1 in barrier 3 of communicator 00000100, rank 0 in allreduce 3"},
		"background receive": {Job{}, newStory(2).waits(mine, 0, 1).call(reduce(1), 0, 1), "none -1 "},
		"length":             {Job{}, newStory(3).call(reduce(1), 0, 2).call(Call{Seq: 1, Kind: "allreduce", What: "allreduce float32[9] sum", Count: 9}, 1), "other length 1 call 1 is allreduce float32[9] sum there, and allreduce float32[8] sum at rank 0"},
		"segment":            {Job{}, newStory(3).call(reduce(1), 0, 2).call(Call{Seq: 1, Kind: "allreduce", What: "allreduce float32[8] sum", Count: 8, Segment: 4}, 1), "other call 1 "},
		"call, of two":       {Job{}, newStory(2).call(reduce(1), 0).call(Call{Seq: 1, Kind: "barrier", What: "barrier"}, 1), "other call 1 "},
		"one call left out":  {Job{}, newStory(3).call(reduce(1), 0, 2).call(Call{Seq: 2, Kind: "barrier", What: "barrier"}, 0, 2).call(Call{Seq: 1, Kind: "barrier", What: "barrier"}, 1), "other order 1 "},
		"failure":            {Job{}, newStory(3).call(failed, 0, 2), "lost 1 rank 1 (peer 1, id1 on lab) is lost in call 2 (allreduce): reset"},
		"quorum":             {knows(Peer{ID: "id1", End: "status 3"}), short.without(1), "quorum 1 has ended: status 3; too few of the 2 members"},
		"parked":             {knows(Peer{ID: "id9", Index: 5, Host: "lab", State: "parked", Answered: true}), newStory(2), "parked -1 peer 5 (id9 on lab) is parked"},
		"ended, not called":  {knows(Peer{ID: "id9", Index: 5, End: "status 1 no space left on device", State: "lost"}), newStory(2), "lost -1 has ended: status 1 no space left on device"},
		"done":               {knows(Peer{ID: "id9", Index: 5, End: "status 0", State: "done"}), newStory(2), "none -1 "},
	} {
		v := Judge(c.job, c.s.records)
		if got := fmt.Sprintf("%s %d ", v.Cause, v.Rank); !strings.HasPrefix(c.want, got) || !strings.Contains(v.Text, c.want[len(got):]) {
			t.Errorf("%s: got %s%s\nwant %s", name, got, v.Text, c.want)
		}
		if v.Rank >= 0 && slices.ContainsFunc(c.s.records, func(r Record) bool { return r.Peer == v.Peer }) && v.Stacks != fmt.Sprint("goroutines of ", v.Rank) {
			t.Errorf("%s: the goroutines are %q", name, v.Stacks)
		}
	}
}

// The newest record of a peer counts.
func TestNewest(t *testing.T) {
	old, s := newStory(2).waits(reduce(1), 0), newStory(2).call(reduce(1), 0, 1)
	for i := range s.records {
		s.records[i].Taken = s.records[i].Taken.Add(time.Second)
	}
	if v := Judge(Job{}, append(s.records, old.records...)); v.Cause != None {
		t.Errorf("got %+v", v)
	}
}

// If all ranks are in the call, the watchdogs decide, and before they have decided the longest waits.
func TestInside(t *testing.T) {
	wait := func(rank, on int, quiet float64, culprits ...int) Call {
		c := reduce(1)
		c.Wait = &Waiting{For: on, QuietMS: quiet, Culprits: culprits}
		return c
	}
	for _, c := range []struct {
		calls []Call // by rank
		want  int
	}{
		{[]Call{wait(0, 3, 900), wait(1, 0, 910), wait(2, 1, 1000), wait(3, 2, 880)}, 1},
		{[]Call{wait(0, 3, 900), wait(1, 0, 990), wait(2, 1, 1000), wait(3, 2, 880)}, 1},
		{[]Call{wait(0, 3, 900, 3), wait(1, 0, 990, 3), wait(2, 1, 1000, 1), wait(3, 2, 880, 2)}, 3},
		{[]Call{reduce(1), reduce(1), reduce(1), reduce(1)}, 0},
	} {
		s := newStory(4)
		for rank, call := range c.calls {
			s.waits(call, rank)
		}
		if v := Judge(Job{}, s.records); v.Cause != Link || v.Rank != c.want {
			t.Errorf("%+v: got %+v, want rank %d", c.calls, v, c.want)
		}
	}
}

// Files come from anywhere: whatever they have, Judge ends with a finding of one short line.
func FuzzJudge(f *testing.F) {
	s := newStory(2).call(reduce(1), 0).waits(point(1, false), 0).waits(point(0, true), 1)
	s.records[0].Sessions[0].Groups = []Group{{Comm: 3, Ranks: []int{0, 1}}}
	job, err := json.Marshal(knows(Peer{ID: "id1", End: "x"}))
	if err != nil {
		f.Fatal(err)
	}
	var texts [][]byte
	for _, r := range s.records {
		text, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		texts = append(texts, text)
	}
	f.Add(job, texts[0], texts[1])
	f.Fuzz(func(t *testing.T, job, a, b []byte) {
		j, err := DecodeJob(job)
		if err != nil {
			j = Job{}
		}
		var records []Record
		for _, text := range [][]byte{a, b} {
			if r, err := DecodeRecord(text); err == nil {
				records = append(records, r)
			}
		}
		if v := Judge(j, records); v.Text == "" || len(v.Text) > MaxText || v.Cause == "" {
			t.Errorf("%+v", v)
		}
	})
}

// Judge ends with a finding of one short line for any records that the decoder accepts.
func TestJudgeAnything(t *testing.T) {
	kinds := []string{FailureOwn, FailureMismatch, FailureDeadlock, FailurePeer, FailureAbort, "x", ""}
	causes := make(map[string]int)
	for seed := range uint64(20000) {
		random := rand.New(rand.NewPCG(seed, 5))
		few := func() int { return random.IntN(6) - 1 }
		s := newStory(1 + random.IntN(4))
		for range random.IntN(12) {
			c := reduce(uint32(random.IntN(3)))
			c.Comm, c.Open, c.MS, c.Background = uint64(random.IntN(2)), random.IntN(2) == 0, float64(random.IntN(400)), random.IntN(4) == 0
			if random.IntN(4) == 0 {
				c.What = strings.Repeat("x", random.IntN(300))
			}
			if random.IntN(3) == 0 {
				c.Point = &Point{Peer: few(), Sends: random.IntN(2) == 0}
			}
			if random.IntN(3) == 0 {
				c.Wait = &Waiting{For: few(), QuietMS: float64(random.IntN(3)), Culprits: []int{few(), few()}, Phase: "slow"}
			}
			if random.IntN(4) == 0 {
				c.Error, c.Failure, c.Blames = "broken", kinds[random.IntN(len(kinds))], []int{few(), few()}
			}
			s.call(c, random.IntN(len(s.records)))
		}
		if r := &s.records[random.IntN(len(s.records))]; random.IntN(2) == 0 {
			r.Sessions[0].Groups = []Group{{Comm: uint64(random.IntN(2)), Ranks: []int{random.IntN(len(s.records))}}}
			r.Needs = random.IntN(4) == 0
		}
		if random.IntN(2) == 0 {
			s.without(random.IntN(len(s.records)))
		}
		for i := range s.records {
			if err := s.records[i].Check(); err != nil {
				t.Fatal(err)
			}
		}
		v := Judge(knows(Peer{ID: fmt.Sprint("id", few()), Halted: random.IntN(3) == 0, Error: "x", State: "parked"}), s.records)
		if v.Text == "" || len(v.Text) > MaxText || v.Cause == "" {
			t.Fatalf("seed %d: %+v", seed, v)
		}
		causes[v.Cause]++
	}
	if len(causes) < 9 {
		t.Errorf("only the causes %v", causes)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, text := range []string{"", "{}", `{"version":2}`, `{"version":1,"sessions":[{"epoch":1,"rank":1,"members":["a"]}]}`,
		`{"version":1,"sessions":[{"epoch":1,"rank":0,"members":[]}]}`, `{"version":1,"sessions":[{"epoch":1,"rank":0,"members":["a"],"groups":[{"comm":"1","ranks":[1]}]}]}`,
		`{"version":1,"calls":[` + strings.Repeat("{},", maxRecord) + `{}]}`} {
		if r, err := DecodeRecord([]byte(text)); err == nil {
			t.Errorf("%.60q: got %+v, want an error", text, r)
		}
	}
	if _, err := DecodeJob([]byte(`{"version":0}`)); err == nil {
		t.Error("no error for a job without a version")
	}
}

// Only the ranks of a communicator can be missing in its calls.
func TestGroups(t *testing.T) {
	c := reduce(1)
	c.Comm = 5
	s := newStory(4).waits(c, 3)
	s.records[3].Sessions[0].Groups = []Group{{Comm: 5, Ranks: []int{2, 3}}}
	if v := Judge(Job{}, s.records); v.Cause != Absent || v.Rank != 2 {
		t.Errorf("got %+v", v)
	}
}

// One rank that has failed by itself counts more than several that blame the first rank from which they have heard of it.
func TestWeights(t *testing.T) {
	fails := func(failure string, rank int) Call {
		c := reduce(1)
		c.Error, c.Failure, c.Blames = "collective: disk full", failure, []int{rank}
		return c
	}
	s := newStory(4).call(fails(FailureOwn, 2), 2).call(fails(FailureAbort, 1), 0, 1, 3)
	if v := Judge(Job{}, s.records); v.Cause != Failed || v.Rank != 2 || !strings.Contains(v.Text, "has failed in call 1 (allreduce): disk full") {
		t.Errorf("got %+v", v)
	}
}
