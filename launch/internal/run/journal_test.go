package run

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch/internal/sink"
	"github.com/elrun/elrun/launch/spec"
)

// eventsIn decodes an event log.
func eventsIn(t *testing.T, log string) (out []event.Event) {
	t.Helper()
	for line := range strings.Lines(log) {
		var e event.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, e)
	}
	return out
}

// The event log says what the job is, who its peers are, what people are told, and how each process ends.
func TestRunJournal(t *testing.T) {
	var events sink.Buffer
	_, _, _ = runShell(t, sayHello+`[ $ELRUN_INDEX = 0 ] && { `+sayDone+`abcd >&3; exit 0; }; read -r dead <&3; kill -9 $$`,
		spec.Options{Peers: 2, Job: "a-job", Output: spec.Output{Events: &events}})
	all := eventsIn(t, events.String())
	first, ok := all[0].Body.(event.Job)
	if !ok || first.Job != "a-job" || first.Elrun != spec.Version || first.Program != "sh" || len(first.Args) != 2 || first.Launcher == "" || all[0].Index != event.NoPeer {
		t.Errorf("the first event is %+v", all[0])
	}
	pids := map[int]int{}
	exits := map[int]event.Exit{}
	told := false
	for _, e := range all {
		switch b := e.Body.(type) {
		case event.Member:
			if b.Who != e.Peer || b.WhoIndex != e.Index || b.Launcher != first.Launcher || b.Began.IsZero() || b.Cores < 1 {
				t.Errorf("member %+v", e)
			}
			pids[e.Index] = b.PID
		case event.Exit:
			exits[e.Index] = b
		case event.Note:
			told = told || strings.Contains(b.Text, "killed by signal 9")
		}
	}
	if len(pids) != 2 || pids[0] == pids[1] || !told {
		t.Errorf("members %v, a line about the kill: %v", pids, told)
	}
	if e := exits[0]; e.Status != 0 || e.PID != pids[0] || e.RanS <= 0 {
		t.Errorf("end of peer 0: %+v", e)
	}
	if e := exits[1]; e.Status != -1 || e.Signal != 9 || e.PID != pids[1] {
		t.Errorf("end of peer 1: %+v", e)
	}
}

// The arguments of the program may have passwords.
func TestRunHidesArgs(t *testing.T) {
	var events sink.Buffer
	runShell(t, sayHello+sayDone+`abcd >&3`, spec.Options{Peers: 1, Output: spec.Output{Events: &events, HideArgs: true}})
	if job := eventsIn(t, events.String())[0].Body.(event.Job); job.Args != nil || job.Program != "sh" {
		t.Errorf("got %+v", job)
	}
}

// The sink of a program gets what the event log gets, also the lines for people.
func TestRunSink(t *testing.T) {
	var events sink.Buffer
	var kept keeper
	runShell(t, sayHello+sayDone+`abcd >&3; kill -9 $$`, spec.Options{Peers: 1, Output: spec.Output{Events: &events, Sink: &kept}})
	count := map[string]int{}
	for _, e := range eventsIn(t, events.String()) {
		body, _ := json.Marshal(e.Body)
		count[e.Body.Name()+string(body)]++
	}
	notes := 0
	for _, e := range kept {
		body, _ := json.Marshal(e.Body)
		count[e.Body.Name()+string(body)]--
		if _, is := e.Body.(event.Note); is {
			notes++
		}
	}
	for what, n := range count {
		if n != 0 {
			t.Errorf("the log has %d more than the sink of %s", n, what)
		}
	}
	if notes == 0 {
		t.Error("the sink has no line for people")
	}
}

// keeper is a Sink that keeps the events.
type keeper []event.Event

// Emit implements event.Sink.
func (k *keeper) Emit(e event.Event) { *k = append(*k, e) }

// Members of other launchers are named once, and again if they come back.
func TestJournalLearns(t *testing.T) {
	var kept keeper
	j := journal{to: &kept, model: timeline.New()}
	a, b := elastic.Member{ID: "aaaaaaaaaaaaaaaa", Index: 3, Host: "lab"}, elastic.Member{ID: "bbbbbbbbbbbbbbbb"}
	for _, view := range [][]elastic.Member{nil, {a}, {a, b}, {b}, {a, b}} {
		j.learn(view)
	}
	var who []string
	for _, e := range kept {
		who = append(who, e.Body.(event.Member).Who)
	}
	if want := []string{a.ID.Short(), b.ID.Short(), a.ID.Short()}; !slices.Equal(who, want) {
		t.Errorf("named %v, want %v", who, want)
	}
	if m := kept[0].Body.(event.Member); m.WhoIndex != 3 || m.Host != "lab" {
		t.Errorf("got %+v", m)
	}
}
