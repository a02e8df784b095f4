package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

// session is the job of the README that a reader starts in one terminal and changes from another
// terminal. A small program trains in place of mnist.
type session struct {
	*elrun
	program string
	members int
}

// The commands in the README's session have the documented effect, in order, and the job finishes.
func TestReadmeSession(t *testing.T) {
	commands := readPage(t, "../../README.md").commands
	at := slices.IndexFunc(commands, func(c string) bool { return strings.HasPrefix(c, "bin/elrun -n 4 --name m ") })
	if at < 0 {
		t.Fatal("the README starts no job")
	}
	program := readmeProgram(t)
	finish := filepath.Join(t.TempDir(), "finish")
	env := []string{"E2E_STEPS=1000000", "E2E_FINISH=" + finish}
	s := &session{&elrun{job: process.NewJob(t)}, program, 4}
	s.launch(t, append([]string{"run", "--listen", listen()}, s.args(commands[at])...), env...)
	s.now(t)
	var second *elrun
	done := 0
	for _, command := range commands[at+1:] {
		switch verb := strings.Fields(command)[1]; verb {
		case "status", "ticket":
			if out, errors, status := process.Command(t, s.args(command)...); status != 0 || verb == "ticket" && !strings.HasPrefix(out, "elrun2.") {
				t.Errorf("%s: status %d, %s%s", command, status, out, errors)
			}
		case "-9":
			if err := syscall.Kill(s.now(t).Members[1].PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			s.members--
			s.now(t)
		case "scale":
			if _, errors, status := process.Command(t, s.args(command)...); status != 0 {
				t.Fatalf("%s: status %d, %s", command, status, errors)
			}
			s.members = 5
			s.now(t)
		case "join":
			second = &elrun{job: s.job}
			second.launch(t, append([]string{"join", "--listen", listen()}, s.args(command)[1:]...), env...)
			s.members += 2
			s.now(t)
		default:
			continue
		}
		done++
	}
	if done != 5 || second == nil {
		t.Fatalf("%d commands were run", done)
	}
	if err := os.WriteFile(finish, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if a, b := s.Wait(t), second.Wait(t); a != 0 || b != 0 {
		t.Errorf("status %d and %d", a, b)
	}
	if want := regexp.MustCompile(fmt.Sprintf(`(?m)^done steps=\d+ peers=%d `, s.members)); !want.MatchString(s.Out.String()) {
		t.Errorf("no line %s", want)
	}
}

// args returns the arguments of a command of the README, for this job and program.
func (s *session) args(command string) []string {
	command, _, _ = strings.Cut(command, " # ")
	command, _, _ = strings.Cut(command, " bin/mnist")
	words := strings.Fields(command)
	for i, word := range words {
		if word == "m" {
			words[i] = s.job.Name
		}
	}
	if slices.Contains(words, "-n") {
		words = append(words, s.program)
	}
	return words[1:]
}

// now waits until all members run, and returns the status that elrun status reports.
func (s *session) now(t *testing.T) launch.Status {
	t.Helper()
	return s.running(t, s.members, 1)
}
