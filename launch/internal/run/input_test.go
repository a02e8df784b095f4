package run

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// reading is a process that takes parts of its standard input, up to a number of them.
type reading struct {
	proc.Process
	most  int
	got   string
	ended int
}

func (r *reading) Input(part []byte) error {
	if r.most == 0 {
		return proc.ErrInputClosed
	}
	r.most--
	if len(part) == 0 {
		r.ended++
	}
	r.got += string(part)
	return nil
}

// Each process gets the whole input and its end. A process that takes no more does not end the
// input of the others, and without any process nothing more is read.
func TestCopyInput(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 3*wire.MaxPart/4/16)
	whole, part := &reading{most: 99}, &reading{most: 1}
	copyInput(strings.NewReader(text), []proc.Process{part, whole})
	if whole.got != text || whole.ended != 1 || part.got != text[:wire.MaxPart/4] || part.ended != 0 {
		t.Errorf("got %d bytes and %d ends, %d bytes and %d ends", len(whole.got), whole.ended, len(part.got), part.ended)
	}
	from := strings.NewReader(text)
	copyInput(from, []proc.Process{&reading{most: 1}})
	if from.Len() != len(text)-2*wire.MaxPart/4 {
		t.Errorf("%d of %d bytes were left", from.Len(), len(text))
	}
}

func TestRunInput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(path, []byte("a\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range []struct {
		in   spec.Input
		want []string
	}{
		{spec.Input{}, []string{"[0] end", "[1] end"}},
		{spec.Input{All: true}, []string{"[0] end", "[1] end"}},
		{spec.Input{Stdin: file}, []string{"[0] a", "[0] b", "[0] end", "[1] end"}},
		{spec.Input{Stdin: strings.NewReader("x\xff\ny\n")}, []string{"[0] end", "[0] x\xff", "[0] y", "[1] end"}},
		{spec.Input{Stdin: strings.NewReader("x\n"), All: true}, []string{"[0] end", "[0] x", "[1] end", "[1] x"}},
	} {
		if _, out, err := runShell(t, "cat; echo end", spec.Options{Peers: 2, Input: c.in}); !slices.Equal(sorted(out), c.want) || err != "" {
			t.Errorf("%+v: printed %q, errors %q, want %q", c.in, out, err, c.want)
		}
	}
	if rest, err := io.ReadAll(file); err != nil || len(rest) > 0 {
		t.Errorf("the peer left %q, %v", rest, err)
	}
}

// A peer that reads no input can end. A peer that is started again does not get the input from its
// middle on.
func TestRunInputOfAnEndedPeer(t *testing.T) {
	endless, end := io.Pipe()
	go func() {
		for {
			if _, err := end.Write(make([]byte, 1<<10)); err != nil {
				return
			}
		}
	}()
	if res, _, err := runShell(t, "exit 0", spec.Options{Peers: 1, Input: spec.Input{Stdin: endless}}); res.Status != 0 || err != "" {
		t.Errorf("status %d, errors %q", res.Status, err)
	}
	_ = endless.Close()
	s := newProcesses(&spec.Options{Input: spec.Input{Stdin: strings.NewReader("x")}}, "", nil)
	s.giveInput()
	if s.input.GoesTo(0) {
		t.Error("a later peer gets input")
	}
}
