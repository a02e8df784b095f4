package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
	"github.com/elrun/elrun/testing/screen"
)

// In each shell, at a terminal, the tabulator completes commands, flags, their values, files and names of running jobs.
func TestCompletion(t *testing.T) {
	e := start(t, "train", 1)
	e.expectRanks(t, 1)
	dir := t.TempDir()
	if err := os.Symlink(process.Elrun(), filepath.Join(dir, "elrun")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "of-tuesday.jsonl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const zsh = `printf 'PS1="ready>"\nautoload -U compinit\ncompinit -u -D\nsource <(elrun completion zsh)\n' >.zshrc; ZDOTDIR=. zsh -i`
	for shell, command := range map[string]string{
		"bash": `printf 'PS1="ready>"\nsource <(elrun completion bash)\n' >.bashrc; bash --rcfile .bashrc -i`,
		"zsh":  zsh,
		"fish": `export XDG_CONFIG_HOME=$PWD XDG_DATA_HOME=$PWD; fish -i -C 'function fish_prompt; echo -n "ready>"; end; function fish_greeting; end; elrun completion fish | source'`,
	} {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skipf("no %s: install it (Debian: apt-get install %s)", shell, shell)
			}
			s := screen.New(t, 150, 24, "cd "+dir+"; export PATH="+dir+":$PATH; "+command)
			s.Until("ready>")
			name := e.job.Name
			for _, c := range []struct{ keys, want string }{
				{"elrun stat\t", "elrun status"},
				{"elrun status " + name[:len(name)-1] + "\t", "elrun status " + name},
				{"elrun --rejoin\t", "elrun --rejoin-timeout"},
				{"elrun -n 2 --transport d\t", "--transport direct"},
				{"elrun --transport=d\t", "--transport=direct"},
				{"elrun report of-t\t", "elrun report of-tuesday.jsonl"},
				{"elrun report --output=of-t\t", "elrun report --output=of-tuesday.jsonl"},
				{"elrun -n 2 ./of-t\t", "elrun -n 2 ./of-tuesday.jsonl"},
			} {
				s.Press("-l", c.keys)
				s.Until(c.want)
				if strings.Contains(s.Text(), "rror") {
					t.Errorf("%q:\n%s", c.keys, s.Text())
				}
				s.Press("C-u")
				s.Press("C-l")
			}
		})
	}
	if err := os.WriteFile(e.finish, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if status := e.Wait(t); status != 0 {
		t.Errorf("the job: status %d", status)
	}
}
