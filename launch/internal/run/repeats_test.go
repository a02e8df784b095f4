package run

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// wordsOf returns the lastWords of a process that has ended.
func wordsOf(text string) *lastWords {
	w := &lastWords{}
	w.add([]byte(text))
	w.end()
	return w
}

// If two processes end by themselves with the same status, the second while it computes a part of the first, the program has a
// mistake. No other end is one.
func TestRepeats(t *testing.T) {
	broke := func(index, code int) spec.Exit { return spec.Exit{Index: index, Code: code} }
	part := wire.RetryOrder{Seq: 1, Step: 12, Samples: []int{7, 1234}, Of: []string{"a"}}
	for name, c := range map[string]struct {
		first, second spec.Exit
		part          wire.RetryOrder
		want          string
	}{
		"same status":      {broke(0, 3), broke(1, 3), part, "step 12, samples 7, 1234: peers 0 and 1 exited with status 3: panic: bad sample"},
		"negative status":  {broke(0, 255), broke(1, 255), part, "step 12, samples 7, 1234: peers 0 and 1 exited with status 255: panic: bad sample"},
		"another status":   {broke(0, 3), broke(1, 2), part, ""},
		"status 0":         {broke(0, 0), broke(1, 0), part, ""},
		"gave up":          {broke(0, spec.StatusQuorum), broke(1, spec.StatusQuorum), part, ""},
		"signals":          {spec.Exit{Code: -1, Signal: syscall.SIGKILL}, spec.Exit{Index: 1, Code: -1, Signal: syscall.SIGKILL}, part, ""},
		"signals, a shell": {broke(0, 137), broke(1, 137), part, ""},
		"first asked":      {spec.Exit{Code: 3, Asked: true}, broke(1, 3), part, ""},
		"second asked":     {broke(0, 3), spec.Exit{Index: 1, Code: 3, Asked: true}, part, ""},
		"lost host":        {spec.Exit{Code: -1, Lost: true}, spec.Exit{Index: 1, Code: -1, Lost: true}, part, ""},
		"its own part":     {broke(0, 3), broke(1, 3), wire.RetryOrder{}, ""},
		"part of another":  {broke(0, 3), broke(1, 3), wire.RetryOrder{Step: 12, Samples: []int{7}, Of: []string{"c"}}, ""},
	} {
		var r repeats
		now := time.Unix(100, 0)
		r.ended("a", c.first, wordsOf("x\npanic: bad sample\n\ngoroutine 1 [running]:\n"))
		r.begin(1, c.part, now)
		r.ended("b", c.second, wordsOf("exit status 3"))
		if wait := r.judge(now); wait || r.mistake != c.want {
			t.Errorf("%s: got %q, wait %v, want %q", name, r.mistake, wait, c.want)
		}
	}
}

// A part that the peer has computed is no cause of its end.
func TestRepeatsAfterThePart(t *testing.T) {
	var r repeats
	r.ended("a", spec.Exit{Code: 3}, nil)
	r.begin(1, wire.RetryOrder{Step: 12, Of: []string{"a"}}, time.Time{})
	r.begin(1, wire.RetryOrder{}, time.Time{})
	r.ended("b", spec.Exit{Index: 1, Code: 3}, nil)
	if r.judge(time.Time{}); r.mistake != "" {
		t.Errorf("got %q", r.mistake)
	}
}

// A peer gets its answer at once if its part has ended one process at most. Otherwise it gets the answer when the processes of all
// members of its part have ended, and what they said is known; or later, if a process does not end.
func TestRepeatsAnswers(t *testing.T) {
	var r repeats
	now := time.Unix(100, 0)
	running := map[string]int{"a": 0, "b": 1}
	answers := func(now time.Time) []peerMessage {
		return r.decisions(now, func(id string) (int, bool) { i, ok := running[id]; return i, ok })
	}
	r.begin(1, wire.RetryOrder{Seq: 1, Step: 12, Of: []string{"a"}}, now)
	if got := answers(now); len(got) != 1 || got[0].to != 1 || *got[0].msg.Decision != (wire.Decision{Seq: 1}) {
		t.Errorf("of a first death: %+v", got)
	}
	r.begin(2, wire.RetryOrder{Seq: 4, Step: 12, Of: []string{"a", "b"}}, now)
	if got := answers(now); got != nil {
		t.Errorf("while b runs: %+v", got)
	}
	if got := answers(now.Add(decisionPatience)); len(got) != 1 || got[0].to != 2 || *got[0].msg.Decision != (wire.Decision{Seq: 4}) {
		t.Errorf("after a while: %+v", got)
	}
	first, second := &lastWords{}, &lastWords{}
	delete(running, "b")
	r.ended("b", spec.Exit{Index: 1, Code: 2, At: now}, second)
	r.begin(2, wire.RetryOrder{Seq: 3, Step: 12, Of: []string{"a", "b"}}, now)
	if got := answers(now); got != nil {
		t.Errorf("while a runs: %+v", got)
	}
	delete(running, "a")
	r.ended("a", spec.Exit{Code: 2, At: now}, first)
	r.begin(2, wire.RetryOrder{Seq: 5, Step: 12, Samples: []int{3}, Of: []string{"a", "b"}}, now)
	if got := answers(now); got != nil || r.mistake != "" {
		t.Errorf("before the last words: %+v", got)
	}
	second.add([]byte("Traceback\nValueError: 3"))
	second.end()
	got := answers(now)
	if len(got) != 1 || got[0].to != 2 || got[0].msg.Decision.Seq != 5 || !strings.HasSuffix(got[0].msg.Decision.Mistake, ": ValueError: 3") {
		t.Errorf("in the end: %+v", got)
	}
	r.begin(0, wire.RetryOrder{Seq: 9, Step: 12, Of: []string{"b"}}, now)
	r.ended("c", spec.Exit{Index: 0, Code: 2}, nil)
	if got := answers(now); len(got) != 0 {
		t.Errorf("a peer that has ended gets %+v", got)
	}
}

// Only so many samples and bytes are kept.
func TestRepeatsAreBounded(t *testing.T) {
	o := wire.RetryOrder{Step: 1, Samples: make([]int, 10), More: 90}
	if got := o.String(); got != "step 1, samples 0, 0, 0, 0, 0, 0, 0, 0 and 92 more" {
		t.Errorf("got %q", got)
	}
	w := wordsOf(strings.Repeat("x", 10*maxWords) + "\n" + strings.Repeat("\n", 10))
	if text, ended := w.report(); len(text) != maxWords || !ended {
		t.Errorf("%d bytes, ended %v", len(text), ended)
	}
	for _, bad := range []wire.RetryOrder{{Step: -1}, {More: -1}, {Samples: make([]int, wire.MaxRetrySamples+1)}, {Of: make([]string, wire.MaxRetryOf+1)}} {
		line, err := wire.Encode(wire.Message{Retry: &bad})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := wire.DecodeMessage(line); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
