package ssh

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// The commands of docs/hosts.md about ssh do what it says, in a folder with its file of hosts and a
// program of this name.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/hosts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## ssh\n")
	section, _, _ = strings.Cut(section, "\n## ")
	s := newServer(t)
	dir, bin := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	name, value, _ := strings.Cut(role(2, 0), "=")
	write(filepath.Join(dir, "train"), "#!/bin/sh\n"+name+"='"+value+"' exec "+process.Self(t)+"\n")
	// What the hosts get of --copy is not left in the home of who runs the test.
	a := &attempt{server: s}
	write(filepath.Join(bin, "ssh"), "#!/bin/sh\nPATH=${PATH#*:} exec "+a.wrapper(t, "export XDG_CACHE_HOME="+bin)+" \"$@\"\n")
	var hosts []string
	ran := 0
	for line := range strings.Lines(section) {
		command, indented := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "    ")
		switch {
		case !indented:
			continue
		case !strings.HasPrefix(command, "elrun "):
			hosts = append(hosts, command)
			write(filepath.Join(dir, "hosts"), strings.Join(hosts, "\n")+"\n")
			continue
		}
		cmd := exec.Command("sh", "-c", process.Elrun()+" --connect-timeout "+process.Limit.String()+" "+strings.TrimPrefix(command, "elrun "))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		p := process.Start(t, cmd)
		if status := p.Wait(t); status != 0 || !strings.Contains(p.Out.String(), total(2)) || !strings.Contains(p.Out.String(), "done steps=2") {
			t.Errorf("%s: status %d, %q, %q", command, status, p.Out.String(), p.Err.String())
		}
		ran++
	}
	if ran < 5 {
		t.Errorf("%d commands were run", ran)
	}
}
