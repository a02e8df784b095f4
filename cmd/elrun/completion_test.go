package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"pgregory.net/rapid"
)

// model returns the model of elrun's command lines.
func model(t *testing.T) *kong.Application {
	t.Helper()
	var c commands
	parser, err := newParser(&c, &terminal{stdout: os.Stdout, stderr: os.Stderr}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model
}

// completed returns what may stand in place of the last of some words.
func completed(app *kong.Application, words ...string) string {
	c := complete(app, words, func() []string { return []string{"mnist", "other"} })
	var all []string
	for _, w := range c.words {
		all = append(all, w.word)
	}
	if c.files {
		all = append(all, ":files")
	}
	return strings.Join(all, " ")
}

func TestComplete(t *testing.T) {
	app := model(t)
	for line, want := range map[string]string{
		"":                          "",
		"sto":                       "stop :files",
		"stat":                      "status :files",
		"sidec":                     ":files",
		"status ":                   "mnist other",
		"status m":                  "mnist",
		"status mnist ":             "",
		"status --js":               "--json",
		"kick ":                     "mnist other",
		"trace m":                   "mnist :files",
		"trace mnist -o ":           ":files",
		"trace --output=r":          ":files",
		"report ":                   ":files",
		"report a ":                 ":files",
		"join --name ":              "mnist other",
		"--name ":                   "",
		"join @t -n 2 --rejoin":     "--rejoin-timeout",
		"--transport ":              "auto shm unix direct p2p",
		"run --transport a":         "auto",
		"--transport=s":             "--transport=shm",
		"-n 4 --quo":                "--quorum",
		"-np 4 --quo":               "--quorum",
		"-n4 --quo":                 "--quorum",
		"-n --quo":                  "",
		"-n 4 ./train --quo":        ":files",
		"run -- --quo":              ":files",
		"bench allr":                "allreduce",
		"help benc":                 "bench",
		"help run ben":              "bench",
		"completion ":               "bash zsh fish",
		"k8s --name x --image y ./": ":files",
		"scale mnist ":              "",
		"no-such --json ":           ":files",
		"--vers":                    "--version",
	} {
		words := strings.Split(line, " ")
		if got := completed(app, words...); got != want && line != "" {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
	if got := completed(app, ""); !strings.HasPrefix(got, "run ps status ") || strings.Contains(got, "sidecar") {
		t.Errorf("without a word: %q", got)
	}
}

// Whatever is on the command line, what is offered begins with the last word, and takes one line.
func TestCompleteAny(t *testing.T) {
	app := model(t)
	word := rapid.OneOf(rapid.SampledFrom([]string{"", "-", "--", "-n", "-np", "--np=", "run", "join", "@x", "ticket", "bench", "--", "=", "x", "--name"}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		words := joinBash(rapid.SliceOf(word).Draw(t, "words"))
		c := complete(app, words, func() []string { return []string{"a\nb", "c"} })
		for _, w := range c.words {
			if !strings.HasPrefix(w.word, words[len(words)-1]) || strings.ContainsAny(w.word+w.help, "\n\t") {
				t.Fatalf("%q: %q", words, w)
			}
		}
	})
}

func TestJoinBash(t *testing.T) {
	for line, want := range map[string]string{"--a = b": "--a=b", "--a =": "--a=", "a = b": "a|=|b", "= b": "=|b", "x --a = b c": "x|--a=b|c", "": ""} {
		if got := joinBash(strings.Fields(line)); !slices.Equal(got, strings.FieldsFunc(want, func(r rune) bool { return r == '|' })) {
			t.Errorf("%q: %q", line, got)
		}
	}
}

// Each shell reads its script without an error.
func TestScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skipf("no %s: install it (Debian: apt-get install %s)", shell, shell)
			}
			script := filepath.Join(t.TempDir(), "script")
			if err := os.WriteFile(script, []byte(scriptOf(shell)), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), shell, "-n", script).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
