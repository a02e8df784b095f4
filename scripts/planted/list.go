package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// lists is the folder of the lists, below the module's root. The bugs of package a/b are in a/b.md.
const lists = "scripts/planted/testdata"

// bug is a small harmful change of the source, and the test that must detect it (mutation
// testing).
type bug struct {
	name     string
	file     string // path below the module's root, with slashes
	old, new string // whole lines with their line ends
	pkg      string // package of the test, as in ./collective, or the file of a test in Python
	test     string // name of the test function
}

// readLists returns the bugs of all lists of the module at root, in the order of paths.
func readLists(root string) (all []bug, err error) {
	dir := filepath.Join(root, filepath.FromSlash(lists))
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		bugs, err := parseList(filepath.ToSlash(name), string(text))
		all = append(all, bugs...)
		return err
	})
	return all, err
}

// parseList parses the list with the given path below the folder of the lists. Each bug must be in
// a file of the package, so that one list shows all bugs of a package.
func parseList(name, text string) ([]bug, error) {
	bugs, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, b := range bugs {
		if want := path.Dir(b.file) + ".md"; name != want {
			return nil, fmt.Errorf("%s: %q is in %s: move the entry to %s/%s", name, b.name, b.file, lists, want)
		}
	}
	return bugs, nil
}

// parse parses a list of bugs. An entry is a heading of level 3 with the name, then a line
//
//	`file` found by `Test` in `./package`
//
// and a block ```diff. Its lines begin with - (the source) or + (the source with the bug).
func parse(text string) ([]bug, error) {
	var all []bug
	for i, section := range strings.Split("\n"+text, "\n### ")[1:] {
		b, err := parseSection(section)
		if err != nil {
			return nil, fmt.Errorf("planted bug %d, %q: %w", i+1, b.name, err)
		}
		all = append(all, b)
	}
	return all, nil
}

// parseSection parses one entry; its first line is the heading without ###.
func parseSection(section string) (bug, error) {
	name, rest, _ := strings.Cut(section, "\n")
	b := bug{name: strings.TrimSpace(name)}
	head, block, ok := strings.Cut(rest, "```diff\n")
	block, _, closed := strings.Cut(block, "```")
	quoted := strings.Split(head, "`")
	if !ok || !closed || len(quoted) != 7 {
		return b, errors.New("want one line `file` found by `Test` in `./package`, then one diff block")
	}
	b.file, b.test, b.pkg = quoted[1], quoted[3], quoted[5]
	for line := range strings.Lines(block) {
		switch line[0] {
		case '-':
			b.old += line[1:]
		case '+':
			b.new += line[1:]
		default:
			return b, fmt.Errorf("line %q begins with neither - nor +", line)
		}
	}
	if b.old == "" || b.old == b.new {
		return b, errors.New("nothing changes")
	}
	return b, nil
}

// apply returns source with the bug. The old lines must occur in the source exactly once.
func (b bug) apply(source string) (string, error) {
	source, at := "\n"+source, "\n"+b.old
	i := strings.Index(source, at)
	if i < 0 || strings.Contains(source[i+1:], at) {
		return "", fmt.Errorf("%s: the lines of %q do not stand there exactly once", b.file, b.name)
	}
	return source[1:i+1] + b.new + source[i+len(at):], nil
}
