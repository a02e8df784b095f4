package ssh

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// docs returns a section of docs/hosts.md.
func docs(t *testing.T, title string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/hosts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## "+title+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// The command in docs/hosts.md that unpacks a tarball on a host installs elrun on that host.
func TestDocsTarball(t *testing.T) {
	a := &attempt{server: newServer(t)}
	dir, home := t.TempDir(), t.TempDir()
	name := "elrun-linux-amd64" // the elrun of this test, whatever the system is
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "dist"), 0o700), os.Mkdir(filepath.Join(dir, name), 0o700),
		os.Symlink(process.Elrun(), filepath.Join(dir, name, "elrun")),
		os.Symlink(a.wrapper(t, "export HOME="+home), filepath.Join(dir, "ssh"))); err != nil {
		t.Fatal(err)
	}
	run(t, "tar", "-czhf", filepath.Join(dir, "dist", name+".tar.gz"), "-C", dir, name)
	for line := range strings.Lines(docs(t, "Machines without Go")) {
		if command, indented := strings.CutPrefix(line, "    ssh"); indented {
			cmd := exec.Command("sh", "-c", "./ssh"+command)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", line, err, out)
			}
		}
	}
	out, err := exec.Command(filepath.Join(home, ".local", "bin", "elrun"), "version").Output()
	if err != nil || !strings.HasPrefix(string(out), "elrun ") {
		t.Errorf("%q, %v", out, err)
	}
}

// The commands about ssh in docs/hosts.md have the documented effect. The commands run in a folder
// that has the document's host file and a program named train, as in the document.
func TestDocs(t *testing.T) {
	section := docs(t, "ssh")
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
	// Files that --copy puts on the hosts must not remain in the home folder of the user who runs the test.
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
