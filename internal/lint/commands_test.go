package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// shownCode returns the code in a document, without line ends: its indented lines and its text in backticks.
func shownCode(t *testing.T, name string) (all []string) {
	t.Helper()
	text := strings.Join(prose(t, name), "\n")
	for _, found := range regexp.MustCompile("(?m)^    (.*)$").FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	for _, found := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(text, -1) {
		all = append(all, strings.Join(strings.Fields(found[1]), " "))
	}
	return all
}

// The make targets in documents exist.
func TestMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(top, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?:^|&& )make ([a-z][a-z0-9-]*)`)
	for _, name := range documents(t) {
		for _, code := range shownCode(t, name) {
			for _, found := range command.FindAllStringSubmatch(code, -1) {
				if !regexp.MustCompile(`(?m)^` + found[1] + `:`).Match(makefile) {
					t.Errorf("%s names make %s, and there is no such target", name, found[1])
				}
			}
		}
	}
}

// The packages and tests in "go test" commands of documents exist. The packages in "go run"
// commands exist, too.
func TestGoCommands(t *testing.T) {
	count := 0
	for _, name := range documents(t) {
		if filepath.Base(filepath.Dir(name)) == "howto" {
			continue // testing/howto runs them
		}
		for _, code := range shownCode(t, name) {
			words := strings.Fields(code)
			at := slices.Index(words, "go")
			if at < 0 || at+2 >= len(words) || words[at+1] != "test" && words[at+1] != "run" {
				continue
			}
			count++
			if err := checkGoCommand(t, words[at+1:]); err != nil {
				t.Errorf("%s: %s: %v", name, code, err)
			}
		}
	}
	if count < 20 {
		t.Errorf("%d commands were found", count)
	}
}

// checkGoCommand returns an error if a folder of a command does not exist, or if the command runs no test.
func checkGoCommand(t *testing.T, words []string) error {
	t.Helper()
	var folders []string
	pattern := ""
	for i, word := range words {
		if folder, ok := strings.CutPrefix(word, "./"); ok && !strings.HasPrefix(folder, "my/") {
			folders = append(folders, filepath.Join(top, strings.TrimSuffix(folder, "...")))
		}
		if (word == "-run" || word == "-bench") && i+1 < len(words) && words[i+1] != "-" && words[i+1] != "REGEXP" {
			pattern = strings.Trim(words[i+1], `'"`)
		}
		if after, ok := strings.CutPrefix(word, "-run="); ok {
			pattern = after
		}
	}
	if len(folders) == 0 {
		return nil
	}
	for _, folder := range folders {
		if _, err := os.Stat(folder); err != nil {
			return err
		}
	}
	if words[0] != "test" || pattern == "" || pattern == "." {
		return nil
	}
	parts := strings.Split(strings.ReplaceAll(pattern, `\|`, "|"), "/") // in a table, | is written with a backslash
	run, err := regexp.Compile(parts[0])
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if runs(t, folder, run) {
			return nil
		}
	}
	return fmt.Errorf("no test is called %s", run)
}

// runs reports whether a folder has a test or benchmark whose name matches.
func runs(t *testing.T, folder string, name *regexp.Regexp) bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	head := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range head.FindAllSubmatch(text, -1) {
			if name.Match(found[1]) {
				return true
			}
		}
	}
	return false
}
