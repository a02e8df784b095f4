package ssh

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// runScript runs a shell script as the peers on hosts, with a standard input and arguments, and
// returns the lines that they print, sorted.
func (s *server) runScript(t *testing.T, flags []string, input, script string, args ...string) []string {
	t.Helper()
	all := append([]string{"--ssh", s.ssh(), "--connect-timeout", process.Limit.String()}, flags...)
	cmd := exec.CommandContext(t.Context(), process.Elrun(), append(append(all, "sh", "-c", script, "sh"), args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(strings.Lines(string(out)))
}

// Arguments, variables and folders on other hosts have the bytes that the user gave.
func TestBytes(t *testing.T) {
	s := newServer(t)
	dir := filepath.Join(t.TempDir(), "caf\xe9")
	run(t, "mkdir", dir)
	got := s.runScript(t, []string{"-H", "a", "--dir", dir, "-x", "V=\xff\xfe"}, "", `printf '%s %s %s\n' "$1" "$V" "$(pwd)"`, "\xe9t\xe9")
	if want := []string{"[0@a] \xe9t\xe9 \xff\xfe " + dir + "\n"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Standard input reaches peers on other hosts: the peer of rank 0, or all peers.
func TestInput(t *testing.T) {
	s := newServer(t)
	input := strings.Repeat("0123456789abcdef", 1<<16)
	for _, c := range []struct {
		flags []string
		want  []string
	}{
		{[]string{"-H", "a,b"}, []string{"[0@a] 1048576\n", "[1@b] 0\n"}},
		{[]string{"-H", "a,b", "--stdin", "all"}, []string{"[0@a] 1048576\n", "[1@b] 1048576\n"}},
		{[]string{"-H", "a,b", "--stdin", "none"}, []string{"[0@a] 0\n", "[1@b] 0\n"}},
	} {
		if got := s.runScript(t, c.flags, input, "wc -c"); !slices.Equal(got, c.want) {
			t.Errorf("%v: got %q, want %q", c.flags, got, c.want)
		}
	}
	// A peer that reads a part of the input, or nothing, ends as usual.
	if got := s.runScript(t, []string{"-H", "a,b", "--stdin", "all"}, input, "head -c 3 | wc -c"); !slices.Equal(got, []string{"[0@a] 3\n", "[1@b] 3\n"}) {
		t.Errorf("got %q", got)
	}
}
