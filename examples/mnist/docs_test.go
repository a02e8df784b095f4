package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// Every flag that the documents show for mnist is a flag of mnist.
func TestFlagsInDocuments(t *testing.T) {
	shown := regexp.MustCompile("bin/mnist (--[^`&\n]*)")
	count := 0
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
			for _, found := range shown.FindAllStringSubmatch(string(text), -1) {
				count++
				if err := unknownFlag(t, found[1]); err != nil {
					t.Errorf("%s: mnist %s: %v", name, found[1], err)
				}
			}
		}
	}
	if count < 10 {
		t.Errorf("%d command lines were found", count)
	}
}

// unknownFlag returns an error if a command line has a flag that mnist does not have. Values may be
// placeholders.
func unknownFlag(t *testing.T, line string) error {
	t.Helper()
	var o options
	parser, err := kong.New(&o, kong.Exit(func(int) {}))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ = strings.Cut(line, " # ")
	for _, word := range strings.Fields(line) {
		if name, _, _ := strings.Cut(word, "="); strings.HasPrefix(name, "--") {
			if _, err := parser.Parse([]string{name + "=x"}); err != nil && strings.Contains(err.Error(), "unknown flag") {
				return err
			}
		}
	}
	return nil
}
