package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elrun/elrun/launch"
)

// A dry run prints the command lines of each host. It runs none of them and makes no file.
func TestDryRun(t *testing.T) {
	dir := t.TempDir()
	ssh := filepath.Join(dir, "ssh")
	if err := os.WriteFile(ssh, []byte("#!/bin/sh\ntouch "+dir+"/connected\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	flags := []string{"-H", "a:2,b:4", "-n", "3", "--ssh", ssh, "--dry-run", "--events", dir + "/events", "--log-dir", dir + "/logs", "--dir", "/data", "-x", "K=it's"}
	stdout, stderr, status := command(t, append(flags, "./train", "--lr", "0.1 x")...)
	if status != 0 || stderr != "" {
		t.Fatalf("status %d, %q", status, stderr)
	}
	for _, want := range []string{"host a: 2 peers\n  here:  " + ssh + " -T ", "host b: 1 peer\n", `  there: cd /data && env 'K=it'\''s' ./train --lr '0.1 x'` + "\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("it made %v, %v", all, err)
	}
	if stdout, _, status := command(t, strings.Fields("k8s --name a --image b --peers 2 --dry-run ./train")...); status != 0 || !strings.Contains(stdout, "kind: Job") {
		t.Errorf("k8s: status %d, %s", status, stdout)
	}
}

// A dry run refuses what a run refuses.
func TestDryRunRefuses(t *testing.T) {
	usageErrors(t, map[string]string{
		"--dry-run ls":                                  "--dry-run goes with -H",
		"-H a:0 --dry-run ls":                           "want 1 to",
		"-H a --dry-run":                                "expected",
		"-H a --dry-run --name a/b ls":                  "job name",
		"-H a:2 --dry-run --min-peers 3 ls":             "room for 2 peers",
		"-H a --dry-run --on x ls":                      "--on",
		"-H a --dry-run --discover dns:x ls":            "--discover does not go with -H",
		"k8s --name A_ --image b --peers 2 --dry-run x": "name",
	})
}

// A shell takes the words of a line as they were.
func TestShellLine(t *testing.T) {
	words := []string{"a b", "it's", "", "$x", "plain-1.2/x", "*", "\\", "\n", "~"}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf '<%s>' "+shellLine(words)).Output()
	if want := "<" + strings.Join(words, "><") + ">"; err != nil || string(out) != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
	if got := formatPlan(launch.HostPlan{Host: "h", Peers: -1, Command: []string{"ssh"}, Program: []string{"x\x1b"}, Copied: "x"}); strings.Contains(got, "\x1b") || !strings.Contains(got, "a peer for each core") {
		t.Errorf("got %q", got)
	}
}
