package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shownCommands returns the command lines of elrun in a document. The list whole has the commands
// on indented lines. The list parts has the commands in backticks within a sentence, which may lack
// arguments.
func shownCommands(text string) (whole, parts []string) {
	line := regexp.MustCompile(`(?m)^    (?:\$ )?((?:bin/)?elrun [^\n]*)$`)
	for _, found := range line.FindAllStringSubmatch(text, -1) {
		whole = append(whole, found[1])
	}
	part := regexp.MustCompile("`((?:bin/)?elrun [^`\n]*)`")
	for _, found := range part.FindAllStringSubmatch(text, -1) {
		parts = append(parts, found[1])
	}
	return whole, parts
}

// output is an example of the output of the commands in $(...): the address of a bootstrap node.
const output = "/ip4/192.0.2.1/tcp/7474/p2p/12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp"

// words splits a command line as a shell does, as far as the documents need it. It drops comments, explanations after three
// spaces, and redirections, and handles quotes.
func words(command string) (all []string) {
	for _, end := range []string{" # ", "   ", " | ", " > ", " >", " <"} {
		command, _, _ = strings.Cut(command, end)
	}
	command = regexp.MustCompile(`\$\([^)]*\)`).ReplaceAllString(command, output)
	command = regexp.MustCompile(`'([^']*)'`).ReplaceAllStringFunc(command, func(s string) string {
		return strings.ReplaceAll(strings.Trim(s, "'"), " ", "_")
	})
	return strings.Fields(command)[1:]
}

// elrun accepts each of its command lines in the documents: the commands, flags and arguments exist. Other tests run most of
// them.
func TestCommandsInDocuments(t *testing.T) {
	count := 0
	for name, text := range documents(t) {
		whole, parts := shownCommands(text)
		for _, command := range whole {
			if err := parses(t, command); err != nil {
				t.Errorf("%s: %s: %v", name, command, err)
			}
		}
		for _, command := range parts {
			if err := parses(t, command); err != nil && strings.Contains(err.Error(), "unknown flag") {
				t.Errorf("%s: %s: %v", name, command, err)
			}
		}
		count += len(whole) + len(parts)
	}
	if count < 60 {
		t.Errorf("%d commands were found", count)
	}
}

// documents returns the text of each document by its name.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, folder := range []string{"../..", "../../docs", "../../docs/*"} {
		names, err := filepath.Glob(folder + "/*.md")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(text)
		}
	}
	return all
}

// parses returns the error of elrun's parser for a command line.
func parses(t *testing.T, command string) error {
	t.Helper()
	var c commands
	parser, err := newParser(&c, &terminal{stdout: os.Stdout, stderr: os.Stderr}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(nameTicket(words(command)))
	return err
}

func TestWords(t *testing.T) {
	got := strings.Join(words("bin/elrun join @ticket --listen $(cat a b) -n 1 'x y' <in   # why"), "|")
	if want := "join|@ticket|--listen|" + output + "|-n|1|x_y"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
