package main

import (
	"errors"
	"fmt"
	"strings"
)

// bug is a small harmful change of the source, and the test that must detect it (mutation
// testing).
type bug struct {
	name     string
	file     string // path below the module's root, with slashes
	old, new string // whole lines with their line ends
	pkg      string // package of the test, as in ./collective
	test     string // name of the test function
}

// parse parses the list of bugs. An entry is a heading of level 3 with the name, then a line
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

// apply returns source with the bug. The old lines must occur in it exactly once.
func (b bug) apply(source string) (string, error) {
	source, at := "\n"+source, "\n"+b.old
	i := strings.Index(source, at)
	if i < 0 || strings.Contains(source[i+1:], at) {
		return "", fmt.Errorf("%s: the lines of %q do not stand there exactly once", b.file, b.name)
	}
	return source[1:i+1] + b.new + source[i+len(at):], nil
}
