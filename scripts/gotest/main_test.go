package main

import (
	"slices"
	"strings"
	"testing"
)

// stream is the go command's output for a package with one test of each outcome.
const stream = `{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestSkip","Output":"    x_test.go:1: no compiler\n"}
{"Action":"output","Package":"p","Test":"TestSkip","Output":"--- SKIP: TestSkip (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestSkip"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`

// failures is further output: a failing test, a test that ends its process, a package that does
// not compile, and a line of plain text.
const failures = `{"Action":"output","Package":"q","Test":"TestBad","Output":"want 1\n"}
{"Action":"fail","Package":"q","Test":"TestBad"}
{"Action":"output","Package":"q","Test":"TestExit","Output":"going down\n"}
{"Action":"output","Package":"q","Output":"FAIL\tq\t0.1s\n"}
{"Action":"fail","Package":"q"}
{"ImportPath":"r","Action":"build-output","Output":"r.go:1: syntax error\n"}
{"ImportPath":"r","Action":"build-fail"}
go: something is wrong`

// summarise returns the printed output for a stream of events, and whether the run counts as a success.
func summarise(t *testing.T, events string, strict bool) (string, bool) {
	t.Helper()
	var out strings.Builder
	s := newSummary(&out)
	if err := read(s, strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	ok := s.close(strict)
	return out.String(), ok
}

func TestSummaryOfSuccess(t *testing.T) {
	want := "ok  \tp\t0.1s\n" +
		"skipped: p TestSkip: x_test.go:1: no compiler\n" +
		"tests: 1 passed, 0 failed, 1 skipped\n"
	got, ok := summarise(t, stream, false)
	if !ok || got != want {
		t.Errorf("got %v and\n%s\nwant true and\n%s", ok, got, want)
	}
}

func TestSkipFailsWhenStrict(t *testing.T) {
	got, ok := summarise(t, stream, true)
	if ok || !strings.Contains(got, "counts as a failure") {
		t.Errorf("got %v and\n%s", ok, got)
	}
}

func TestSummaryOfFailure(t *testing.T) {
	want := "want 1\n" +
		"FAIL\tq\t0.1s\n" +
		"going down\n" +
		"r.go:1: syntax error\n" +
		"go: something is wrong" +
		"failed: q TestBad\n" +
		"failed: q TestExit\n" +
		"tests: 0 passed, 2 failed, 0 skipped\n"
	got, ok := summarise(t, failures, false)
	if ok || got != want {
		t.Errorf("got %v and\n%s\nwant false and\n%s", ok, got, want)
	}
}

func TestReasonOfSilentSkip(t *testing.T) {
	if got := reason([]string{"=== RUN   TestX\n", "--- SKIP: TestX (0.00s)\n"}); got != "no reason given" {
		t.Errorf("got %q", got)
	}
}

// Each -C begins a further run, of which it is the first flag.
func TestRunsOfSeveralModules(t *testing.T) {
	for _, c := range []struct {
		args, want string // commands are separated by "; "
	}{
		{"", "go test -json"},
		{"-run X ./...", "go test -json -run X ./..."},
		{"./... -C a ./... -v -C b .", "go test -json ./...; go test -C a -json ./... -v; go test -C b -json ."},
		{"-C a ./...", "go test -C a -json ./..."},
		{"-C", "go test -json -C"}, // the go command reports the missing folder
	} {
		var got []string
		for _, args := range parts(strings.Fields(c.args)) {
			got = append(got, strings.Join(command(args).Args, " "))
		}
		if want := strings.Split(c.want, "; "); !slices.Equal(got, want) {
			t.Errorf("%q runs %q, want %q", c.args, got, want)
		}
	}
}
