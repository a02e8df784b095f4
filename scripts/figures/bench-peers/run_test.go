package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every side is measured in each round, or in every fourth round if its runs are long. Each round begins with another side.
func TestTurns(t *testing.T) {
	p := plan{sides: []side{{name: "a"}, {name: "b"}, {name: "c"}}, ranks: []int{2, 4}, groups: [][]int{{4, 8}, {1024}}, rounds: 2}
	var got []string
	for _, one := range p.turns() {
		got = append(got, fmt.Sprint(one.round, one.n, one.sizes, one.side.name))
	}
	if len(got) != 2*2*2*3 {
		t.Fatalf("%d turns: %v", len(got), got)
	}
	if want := []string{"0 2 [4 8]a", "0 2 [4 8]b", "0 2 [4 8]c", "0 2 [1024]a"}; !slices.Equal(got[:4], want) {
		t.Errorf("begins with %v, want %v", got[:4], want)
	}
	if want := []string{"1 2 [4 8]b", "1 2 [4 8]c", "1 2 [4 8]a"}; !slices.Equal(got[12:15], want) {
		t.Errorf("the second round begins with %v, want %v", got[12:15], want)
	}
	p = plan{sides: []side{{name: "a"}, {name: "b", long: true}}, ranks: []int{2}, groups: [][]int{{4}}, rounds: 6}
	got = nil
	for _, one := range p.turns() {
		got = append(got, fmt.Sprint(one.round, one.side.name))
	}
	if want := []string{"0a", "0b", "1a", "2a", "3a", "4a", "4b", "5a"}; !slices.Equal(got, want) || longRounds(6) != 2 {
		t.Errorf("turns %v, want %v; long ones %d", got, want, longRounds(6))
	}
}

// shell returns a side that runs a shell script.
func shell(name, script string) side {
	return side{name: name, start: func(_ rig, ctx context.Context, n int, sizes []int) ([]*exec.Cmd, error) {
		return []*exec.Cmd{exec.CommandContext(ctx, "/bin/sh", "-c", script, name, fmt.Sprint(n), fmt.Sprint(sizes[0]))}, nil
	}}
}

// prints is a script that prints a result.
const prints = `echo "{\"n\":$1,\"bytes\":$2,\"us_p50\":5}"`

// After a failure a side has no further runs, the reason is recorded, and the runs of the other
// sides continue.
func TestCarryOut(t *testing.T) {
	p := plan{sides: []side{
		shell("good", prints), shell("broken", "echo it is broken >&2; exit 3"), shell("mute", "true"),
		{name: "absent", start: func(rig, context.Context, int, []int) ([]*exec.Cmd, error) { return nil, errors.New("not here") }},
	}, ranks: []int{2}, groups: [][]int{{4}}, rounds: 3}
	s := &study{Missing: map[string]string{}}
	var log strings.Builder
	if err := p.carryOut(t.Context(), rig{}, s, &log); err != nil {
		t.Fatal(err)
	}
	if got := s.times(partHost, "good", 2, 4); len(got) != 3 || got[2] != 5 || len(s.Records) != 3 {
		t.Errorf("records %+v", s.Records)
	}
	for name, want := range map[string]string{"broken": "it is broken", "mute": "want [4]", "absent": "not here"} {
		if !strings.Contains(s.Missing[name], want) || strings.Count(log.String(), name+" is left out") != 1 {
			t.Errorf("%s: reason %q, log:\n%s", name, s.Missing[name], log.String())
		}
	}
}

func TestWrongNumbersEndTheRun(t *testing.T) {
	p := plan{sides: []side{shell("bad", `echo "{\"n\":2,\"bytes\":4,\"us_p50\":5,\"wrong\":1}"`)}, ranks: []int{2}, groups: [][]int{{4}}, rounds: 2}
	err := p.carryOut(t.Context(), rig{}, &study{Missing: map[string]string{}}, &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "1 elements are wrong") {
		t.Errorf("got %v", err)
	}
}

// An interrupted run ends with the error of the context, and records no side as failed.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := plan{sides: []side{{name: "slow", start: func(_ rig, within context.Context, _ int, _ []int) ([]*exec.Cmd, error) {
		cancel()
		return []*exec.Cmd{exec.CommandContext(within, "/bin/sh", "-c", "read forever < /dev/zero")}, nil
	}}}, ranks: []int{2}, groups: [][]int{{4}}, rounds: 1}
	s := &study{Missing: map[string]string{}}
	if err := p.carryOut(ctx, rig{}, s, &strings.Builder{}); !errors.Is(err, context.Canceled) || len(s.Missing) > 0 {
		t.Errorf("got %v, missing %v", err, s.Missing)
	}
}

// When one of several commands fails, crew ends the others and returns the first error.
func TestCrewEndsTogether(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := newCrew(3, cancel)
	c.start(exec.CommandContext(ctx, "/bin/sh", "-c", "read forever < /dev/zero"))
	c.start(exec.CommandContext(ctx, "/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo line $i >&2; done; exit 7"))
	c.start(exec.CommandContext(ctx, "/no/such/program"))
	_, err := c.wait([]int{4})
	if err == nil || !strings.Contains(err.Error(), "status 7") && !strings.Contains(err.Error(), "no such") {
		t.Errorf("got %v", err)
	}
}

func TestExplain(t *testing.T) {
	cmd := exec.Command("prog", "-x")
	if err := explain(cmd, nil, "warning"); err != nil {
		t.Errorf("a command that worked: %v", err)
	}
	cause := errors.New("exit status 1")
	err := explain(cmd, cause, "1\n2\n3\n4\n5\n6\n7\n8\n")
	if !errors.Is(err, cause) || err.Error() != "prog -x: exit status 1\n3\n4\n5\n6\n7\n8" {
		t.Errorf("got %q", err)
	}
}
