package ssh

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elrun/elrun/cmd/elrun/bench"
	"github.com/elrun/elrun/testing/process"
)

// elrun bench starts peers on hosts where elrun has the same path as here, and copies no file. For
// each size it compares the measured bandwidth with the bandwidth of the slowest link.
func TestBench(t *testing.T) {
	s := newServer(t)
	flags := []string{"bench", "allreduce", "--ssh", s.ssh(), "--connect-timeout", process.Limit.String(), "--sizes", "4,100K", "--iters", "3", "-H", "a,b"}
	out, errs, status := process.Command(t, append(flags, "--json")...)
	if status != 0 || strings.Count(out, "\n") != 2 {
		t.Fatalf("status %d: %s%s", status, out, errs)
	}
	for line := range strings.Lines(out) {
		var r bench.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if r.N != 2 || r.Wrong != 0 || r.Link <= 0 || r.OfBound != r.BusBW/r.Link {
			t.Errorf("got %+v", r)
		}
	}
	out, errs, status = process.Command(t, append(flags, "-n", "1")...) // uses only one of the two hosts
	if status != 0 || !strings.Contains(out, "allreduce, 1 peers") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	out, errs, status = process.Command(t, append(flags, "--hostfile", "x")...)
	if status != 2 || !strings.Contains(errs, "name the hosts in one way") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
}

// The commands about bench in docs/hosts.md measure, by ssh and by a ticket.
func TestDocsBench(t *testing.T) {
	s := newServer(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "elrun"), []byte("#!/bin/sh\nexec "+process.Elrun()+" \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	start := func(command string) *process.Process {
		cmd := exec.Command("sh", "-c", "exec "+command)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		return process.Start(t, cmd)
	}
	var commands []string
	for line := range strings.Lines(docs(t, "How fast the hosts are")) {
		if command, indented := strings.CutPrefix(strings.TrimSpace(line), "elrun "); indented && strings.HasPrefix(line, "    ") {
			commands = append(commands, "elrun "+command)
		}
	}
	if len(commands) != 4 {
		t.Fatalf("commands %q", commands)
	}
	measured := func(p *process.Process) {
		t.Helper()
		if status := p.Wait(t); status != 0 {
			t.Errorf("status %d: %s%s", status, p.Out.String(), p.Err.String())
		}
	}
	over := start(commands[0] + " --connect-timeout " + process.Limit.String() + " --ssh '" + s.ssh() + "'")
	measured(over)
	first := start(commands[1])
	first.Until(t, "a ticket", func() bool { return start(commands[2]).Wait(t) == 0 })
	second := start(commands[3])
	measured(second)
	measured(first)
	for name, out := range map[string]string{"ssh": over.Out.String(), "ticket": first.Out.String() + second.Out.String()} {
		if strings.Count(out, "of bound") != 1 || strings.Count(out, "links from rank to rank: 0-1 ") != 1 {
			t.Errorf("%s: %q", name, out)
		}
	}
}
