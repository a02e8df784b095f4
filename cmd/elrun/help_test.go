package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A bare name that is a program of the system is refused, unless it is the interpreter of a program.
func TestCheckProgramName(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"mine", "stat"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	script := filepath.Join(dir, "mine")
	for line, want := range map[string]string{
		"ls":                     "elrun run -- ls starts a peer for each core",
		"kill 3":                 "elrun run -- kill 3 starts",
		"ls " + dir:              "elrun run -- ls", // no file
		"ls --flag":              "elrun run -- ls --flag",
		"stauts":                 "did you mean elrun status?",
		"Stop":                   "did you mean elrun stop?",
		"kcik 3":                 "did you mean elrun kick?",
		"sh " + script:           "",
		"sh -c true":             "",
		"mine":                   "",
		"stat":                   "", // a program of the user, though its name is like that of a command
		"/bin/ls":                "",
		"./stauts":               "",
		"-n 2 ls":                "",
		"run ls":                 "",
		"status":                 "",
		"no-program-of-any-kind": "",
		"":                       "",
	} {
		got := ""
		if err := checkProgramName(strings.Fields(line), []string{"run", "ps", "status", "stop", "kick", "scale"}); err != nil {
			got = err.Error()
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"status", "status", 0}, {"stauts", "status", 1}, {"tatus", "status", 1}, {"sttus", "status", 1}, {"stats", "status", 1},
		{"top", "stop", 1}, {"kill", "kick", 2}, {"ls", "ps", 1}, {"ab", "cd", 2}} {
		if got := mistakes(c.a, c.b); got != c.want || got != mistakes(c.b, c.a) {
			t.Errorf("%q and %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func FuzzCheckProgramName(f *testing.F) {
	f.Add("stauts", "job")
	f.Add("\xff", "")
	f.Fuzz(func(t *testing.T, name, arg string) {
		if err := checkProgramName([]string{name, arg}, []string{"status", "ps"}); err != nil && len(err.Error()) > 300+2*len(name) {
			t.Errorf("%q", err)
		}
	})
}
