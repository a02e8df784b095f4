package job_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/launch/internal/job"
)

// Every file in testdata is a scenario: inputs, each followed by its outputs, which are indented. The
// first line has the configuration. -rewrite replaces the outputs; read them before you commit them.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := play(string(text))
			switch {
			case err != nil:
				t.Error(err)
			case flag.Lookup("rewrite").Value.String() == "true":
				err = os.WriteFile(file, []byte(got), 0o644)
			case got != string(text):
				t.Errorf("it prints (-rewrite accepts that):\n%s", got)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// play runs a script and returns it with the outputs.
func play(text string) (string, error) {
	var b strings.Builder
	var j *job.Job
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		b.WriteString(line)
		w := words(strings.Fields(line))
		var outs []job.Output
		switch {
		case len(w) == 0 || w[0] == "#":
			continue
		case w[0] == "job":
			c := job.Config{Peers: w.number(1), Restarts: w.number(2), Join: w.at(3) == "join", Grace: 10 * time.Second, StartTimeout: time.Minute}
			j, outs = job.New(c)
		case j == nil || w.input() == nil:
			return "", fmt.Errorf("unknown command %q", line)
		default:
			outs = j.Step(w.input())
		}
		for _, o := range outs {
			fmt.Fprintf(&b, "  %s %v\n", strings.TrimPrefix(fmt.Sprintf("%T", o), "job."), o)
		}
	}
	return b.String(), nil
}

// words are the words of a command.
type words []string

func (w words) at(i int) string {
	if i < len(w) {
		return w[i]
	}
	return ""
}

func (w words) number(i int) int {
	n, _ := strconv.Atoi(w.at(i)) // no number is 0
	return n
}

func (w words) has(word string) bool { return slices.Contains(w, word) }

func (w words) ids(i int) (out []job.ID) {
	for _, s := range w[min(i, len(w)):] {
		out = append(out, job.ID(s))
	}
	return out
}

// input returns the input of a command, and nil for an unknown one.
func (w words) input() job.Input {
	seat, id := w.number(1), job.ID(w.at(2))
	switch w[0] {
	case "tick":
		return job.Tick{Now: time.Duration(w.number(1)) * time.Second}
	case "hello":
		return job.Hello{Seat: seat, ID: id, Program: max(1, w.number(3))}
	case "renew":
		return job.Renew{Seat: seat, ID: id}
	case "view":
		return job.View{Seat: seat, Members: w.ids(2)}
	case "foreign":
		return job.Foreign{}
	case "leave":
		return job.Leave{Who: job.ID(w.at(1)), Kicked: w.has("kicked"), Soon: w.has("soon")}
	case "done":
		return job.Done{Seat: seat, Digest: w.at(2)}
	case "closed":
		return job.Closed{Seat: seat}
	case "mistake":
		return job.Mistake{Seat: seat, Who: id}
	case "toofew":
		return job.TooFew{Seat: seat}
	case "refused":
		return job.Refused{Seat: seat}
	case "gone":
		return job.Gone{Seat: seat}
	case "dying":
		return job.Dying{Seat: seat}
	case "exit":
		return job.Exit{Seat: seat, Code: w.number(2), Asked: w.has("asked")}
	case "killed":
		return job.Exit{Seat: seat, Code: -1, Signal: w.number(2), Asked: w.has("asked")}
	case "lost":
		return job.Exit{Seat: seat, Code: -1, Lost: true}
	case "halted":
		return job.Halted{Seat: seat, On: w.at(2) == "on"}
	case "suspect":
		return job.Suspect{Who: job.ID(w.at(1))}
	case "signal":
		return job.Signal{Number: w.number(1)}
	case "stop":
		return job.Stop{}
	case "scale":
		s := job.Scale{N: w.number(1), OnHost: w.at(2) == "of"}
		for i := 3; i < len(w); i++ {
			s.Seats = append(s.Seats, w.number(i))
		}
		return s
	case "restarts":
		return job.Restarts{N: w.number(1)}
	case "told":
		return job.Told{IDs: w.ids(1)}
	}
	return nil
}
