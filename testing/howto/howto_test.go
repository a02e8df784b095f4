// Package howto tests the worked examples in docs/howto. Each page shows changes of the source and
// commands. The test applies the changes in an overlay and runs the commands with it.
package howto

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// top is the folder of go.mod.
const top = "../.."

// page is the content of a document: new texts of files by path, and commands.
type page struct {
	files    map[string]string
	commands []string
}

// read reads a page. A line "New file `PATH`:" or "Change `PATH`..." names the file of the blocks
// after this line. A block of Go is the whole text of the file. A diff block replaces its old lines
// by its new lines.
func read(t *testing.T, name string) page {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	p := page{files: make(map[string]string)}
	named := regexp.MustCompile("^(?:New file|Change) `([^`]+)`")
	file, language, block := "", "", ""
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "```") && language == "":
			language, block = strings.TrimSpace(line[3:]), ""
		case strings.HasPrefix(line, "```"):
			p.add(t, file, language, block)
			language = ""
		case language != "":
			block += line
		case named.MatchString(line):
			file = named.FindStringSubmatch(line)[1]
		case strings.HasPrefix(line, "    go "):
			p.commands = append(p.commands, strings.TrimSpace(line))
		}
	}
	return p
}

// add applies a block to the text of a file in p.files.
func (p *page) add(t *testing.T, file, language, block string) {
	t.Helper()
	if language == "go" {
		p.files[file] = block
		return
	}
	if p.files[file] == "" {
		text, err := os.ReadFile(filepath.Join(top, file))
		if err != nil {
			t.Fatal(err)
		}
		p.files[file] = string(text)
	}
	var was, is string
	for line := range strings.Lines(block) {
		if line[0] != '+' {
			was += line[1:]
		}
		if line[0] != '-' {
			is += line[1:]
		}
	}
	if n := strings.Count(p.files[file], was); n != 1 {
		t.Fatalf("%s has %d times what the page changes, want it once:\n%s", file, n, was)
	}
	p.files[file] = strings.Replace(p.files[file], was, is, 1)
}

// overlay writes the changed files and returns the name of an overlay for the go command.
func (p *page) overlay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs(top)
	if err != nil {
		t.Fatal(err)
	}
	replace := make(map[string]string)
	for path, text := range p.files {
		name := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, path)] = name
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, list, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// The changes of each page apply to the source, and its commands succeed.
func TestPages(t *testing.T) {
	names, err := filepath.Glob(top + "/docs/howto/*.md")
	if err != nil || len(names) < 5 {
		t.Fatalf("%d pages, %v", len(names), err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".md"), func(t *testing.T) {
			p := read(t, name)
			if len(p.files) == 0 || len(p.commands) == 0 {
				t.Fatalf("%d files, %d commands", len(p.files), len(p.commands))
			}
			overlay := p.overlay(t)
			for _, command := range p.commands {
				if out, err := run(t, command, overlay); err != nil {
					t.Errorf("%s: %v\n%s", command, err, out)
				} else if strings.Contains(out, "no tests to run") {
					t.Errorf("%s: no tests to run", command)
				}
			}
		})
	}
}

// run runs a go command with an overlay. A test runs in the folder of its package, or in a
// temporary folder if the package is only in the overlay.
func run(t *testing.T, command, overlay string) (output string, err error) {
	t.Helper()
	words := strings.Fields(command)[1:]
	folder := words[1]
	if words[0] != "test" {
		cmd := exec.CommandContext(t.Context(), "go", words[0], "-overlay="+overlay, folder)
		cmd.Dir = top
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	program := filepath.Join(t.TempDir(), "test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay="+overlay, "-o", program, folder)
	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		return string(out), err
	}
	args := []string{"-test.timeout=5m"}
	if len(words) == 4 && words[2] == "-run" {
		args = append(args, "-test.run="+words[3])
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	if cmd.Dir = filepath.Join(top, folder); !isFolder(cmd.Dir) {
		cmd.Dir = t.TempDir()
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// isFolder reports whether there is a folder of a name.
func isFolder(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}
