package main

import (
	"fmt"
	"io"
	"strings"
)

// event is a line of "go test -json", with the fields that are used here (see "go doc
// test2json"). Test is empty in events of a whole package.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// test identifies a test in a package.
type test struct{ pkg, name string }

// summary collects events. It is not safe for concurrent use.
type summary struct {
	out     io.Writer
	pending map[test][]string // output of running tests
	passed  int
	failed  []test
	skipped []skip
}

// skip is a skipped test with its reason.
type skip struct {
	test
	reason string
}

// newSummary returns an empty summary that prints to out.
func newSummary(out io.Writer) *summary {
	return &summary{out: out, pending: map[test][]string{}}
}

func (s *summary) print(text string) { io.WriteString(s.out, text) }

// add processes the next event.
func (s *summary) add(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "output":
		s.output(t, e.Output)
	case "build-output":
		s.print(e.Output)
	case "fail":
		s.fail(t)
	case "pass":
		if t.name != "" {
			s.passed++
		}
		delete(s.pending, t)
	case "skip":
		if t.name != "" {
			s.skipped = append(s.skipped, skip{t, reason(s.pending[t])})
		}
		delete(s.pending, t)
	}
}

// output keeps the output of a test until its result is known. Output of a package is its closing
// line, or a severe problem, and is printed at once.
func (s *summary) output(t test, text string) {
	switch {
	case t.name != "":
		s.pending[t] = append(s.pending[t], text)
	case text != "PASS\n" && text != "FAIL\n":
		s.print(text)
	}
}

// fail prints the output of a failed test. If a package has failed, it prints the output of the tests that have not ended,
// because one of them has ended the process.
func (s *summary) fail(t test) {
	if t.name != "" {
		s.failed = append(s.failed, t)
		s.show(t)
		return
	}
	for other := range s.pending {
		if other.pkg == t.pkg {
			s.failed = append(s.failed, other)
			s.show(other)
		}
	}
}

// show prints the pending output of a test and forgets it.
func (s *summary) show(t test) {
	for _, text := range s.pending[t] {
		s.print(text)
	}
	delete(s.pending, t)
}

// reason returns the reason of a skip from the test's output: the last line that is neither "===
// RUN" nor "--- SKIP".
func reason(output []string) string {
	for i := len(output) - 1; i >= 0; i-- {
		text := strings.TrimSpace(output[i])
		if text != "" && !strings.HasPrefix(text, "===") && !strings.HasPrefix(text, "---") {
			return text
		}
	}
	return "no reason given"
}

// close prints the summary and reports whether all is well. If strict is set, skipped tests count
// as failures.
func (s *summary) close(strict bool) bool {
	for _, k := range s.skipped {
		s.print(fmt.Sprintf("skipped: %s %s: %s\n", k.pkg, k.name, k.reason))
	}
	for _, t := range s.failed {
		s.print(fmt.Sprintf("failed: %s %s\n", t.pkg, t.name))
	}
	s.print(fmt.Sprintf("tests: %d passed, %d failed, %d skipped\n", s.passed, len(s.failed), len(s.skipped)))
	if strict && len(s.skipped) > 0 {
		s.print("a skipped test counts as a failure where ELRUN_CI is set\n")
		return false
	}
	return len(s.failed) == 0
}
