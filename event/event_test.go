package event

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// ptr returns a pointer to x.
func ptr(x float64) *float64 { return &x }

// bodies returns a body of each kind, with every field set.
func bodies() []Body {
	return []Body{
		View{Members: []string{"a", "b"}, Voters: []string{"a"}, Reason: "start"},
		Step{Attempt: 1, Microbatches: [][2]int{{0, 3}}, ShareSamples: 48, Samples: 512, Loss: 0.25, Digest: "ff",
			Recomputed: 1, ComputeMS: 1.5, CommMS: 2.5, StepMS: 4, PredictedMS: 2, Of: 100, GradNorm: 0.5, NoiseScale: 800, LR: 0.1,
			Times: Times{Began: time.Unix(9, 0).UTC(), LostMS: 1, PointMS: 2, DataMS: 3, WaitMS: 4, WaitFor: "b", ReduceMS: 5, ApplyMS: 6, CommitMS: 7}},
		Growth{Old: 128, New: 256, NoiseScale: 900.5, Gain: 2},
		Shares{Old: []int{8, 8}, New: []int{12, 4}, Reason: "rank 1 is slow"},
		Order{Order: []int{0, 2, 1}, Before: 2.5, After: 25, Reason: "a slow link"},
		Lost{Who: "a", Cause: "reset", DetectMS: 3},
		Join{Who: "a", Reason: "ticket", Bytes: 7, MS: 1.5},
		Leave{Who: "a", Reason: "asked"},
		Parked{Who: "a", Reason: "never level"},
		Fenced{Who: "a", Reason: "silent"},
		Forged{Who: "b", Reason: "hash"},
		Audit{Who: []string{"a", "b"}, Out: true, For: 2, Of: 3},
		Resync{Who: "a", Reason: "behind", Bytes: 9, MS: 2},
		Complete{},
		Refused{Reason: "other settings"},
		Unchanged{Steps: 10, Remedy: "change it"},
		Decided{Why: "-[a]: a and b cannot reach each other (quorum)"},
		Quorum{State: "lost", Present: 1, Needed: 2},
		Restart{MS: 4},
		Saving{Path: "d/1", Failed: "disk full"}, Checkpoint{Path: "d/1", MS: 5},
		Stall{Culprit: "a,b", Phase: "not in the call", What: "barrier", SinceMS: 2000, Over: true},
		Path{Who: "a", Kind: "p2p", Addr: "/ip4/127.0.0.1/tcp/1", Encrypted: true},
		Dropped{Events: 1204},
		Done{Steps: 7, Peers: 4, Accuracy: ptr(0.97), Loss: ptr(0.1), SHA256: "aa"},
		Job{Job: "j", Elrun: "1.0", Launcher: "l", Program: "./p", Args: []string{"-x"}, Settings: map[string]string{"seed": "1"},
			Samples: 9, Steps: 8, Passes: 7, GlobalBatch: 6, Microbatch: 5, Exact: true, Params: 4, Resumed: 3},
		Member{Who: "a", WhoIndex: 1, Host: "h", Machine: "m", Site: "s", Launcher: "l", PID: 9, Began: time.Unix(8, 0).UTC(),
			OS: "linux", Arch: "amd64", Cores: 4, Elrun: "1.0"},
		Exit{PID: 9, Status: -1, Signal: 9, Lost: true, Asked: true, Says: "why", RanS: 1.5, CPUS: 1, MaxRSS: 1 << 20},
		Note{Text: "a line"},
		Notice{Cause: "spot"},
		Eval{Set: "test", Samples: 10, Accuracy: ptr(0.9), Loss: ptr(0.2), MS: 5},
		Usage{CPUS: 1, RSS: 2, Sent: map[string]int64{"shm": 3}, Received: map[string]int64{"shm": 4}, GCMS: 5, Goroutines: 6},
		Link{From: "a", MBs: 1},
		Clock{Who: "a", OffsetMS: 1, ErrorMS: 2},
	}
}

// Every kind of event survives encoding and decoding.
func TestRoundTrip(t *testing.T) {
	for _, body := range bodies() {
		want := Event{Time: time.Unix(1, 2).UTC(), Peer: "peer", Index: 3, Epoch: 4, Step: 5, Body: body}
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Event
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", body.Name(), got, want)
		}
	}
}

// Each line of the log is a flat object with fixed names, which scripts rely on.
func TestFields(t *testing.T) {
	b, err := json.Marshal(Event{Time: time.Unix(1, 2), Peer: "p", Index: 0, Epoch: 1, Step: 2, Body: Lost{Who: "q", Cause: "exit"}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"time":"1970-01-01T00:00:01.000000002Z","event":"lost","peer":"p","index":0,"epoch":1,"step":2,` +
		`"who":"q","cause":"exit","detect_ms":0}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
}

// An event of an unknown kind is kept and written again byte for byte.
func TestUnknownEvent(t *testing.T) {
	const line = `{"time":"1970-01-01T00:00:01Z","event":"later","peer":"p","index":0,"extra":[1]}`
	var e Event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		t.Fatal(err)
	}
	o, ok := e.Body.(Other)
	if !ok || o.Name() != "later" || string(o.Raw) != line {
		t.Errorf("got %+v", e)
	}
	b, err := json.Marshal(e)
	if err != nil || string(b) != line {
		t.Errorf("marshal: got %s, %v; want the line as it came", b, err)
	}
}

// An event without a body cannot be written.
func TestNoBody(t *testing.T) {
	if _, err := json.Marshal(Event{}); err == nil {
		t.Error("an event without a body was written")
	}
}

// The last line of a job has accuracy and loss only if they were reported.
func TestDoneLine(t *testing.T) {
	for _, c := range []struct {
		done Done
		want string
	}{
		{Done{Steps: 1, Peers: 2, SHA256: "ab"}, "done steps=1 peers=2 sha256=ab"},
		{Done{Steps: 1, Peers: 2, Accuracy: ptr(0.98765), Loss: ptr(0.0123456789), SHA256: "ab"},
			"done steps=1 peers=2 accuracy=0.9877 loss=0.0123457 sha256=ab"},
	} {
		if got := c.done.Line(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// Any step becomes one line of the log. Reading the line gives the same step, except invalid UTF-8.
func TestStepRoundTripProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := Step{Loss: rapid.Float64Range(-1e9, 1e9).Draw(t, "loss"), Samples: rapid.Int().Draw(t, "samples"),
			Digest: rapid.String().Draw(t, "digest"), Microbatches: [][2]int{}}
		b, err := json.Marshal(Event{Peer: rapid.String().Draw(t, "peer"), Body: body})
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsRune(string(b), '\n') {
			t.Fatalf("an event of more than one line: %s", b)
		}
		var got Event
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		want := body
		want.Digest = strings.ToValidUTF8(body.Digest, "\ufffd")
		if g := got.Body.(Step); g.Loss != want.Loss || g.Samples != want.Samples || g.Digest != want.Digest {
			t.Fatalf("got %+v, want %+v", g, want)
		}
	})
}

// FuzzUnmarshal checks that an event that was read can be written again, unless JSON cannot express
// the year of its time.
func FuzzUnmarshal(f *testing.F) {
	for _, body := range bodies() {
		b, err := json.Marshal(Event{Body: body})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var e Event
		if json.Unmarshal(b, &e) != nil {
			return
		}
		if _, err := json.Marshal(e); err != nil && e.Time.Year() < 10000 && e.Time.Year() >= 0 {
			t.Fatalf("%q was read and cannot be written: %v", b, err)
		}
	})
}
