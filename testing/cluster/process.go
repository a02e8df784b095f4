package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

// runProcesses calls f at n ranks, each in a process of its own (InProcesses).
func runProcesses(t testing.TB, n int, f func(ctx context.Context, c *collective.Comm) error) {
	t.Helper()
	if launch.Launched() {
		os.Exit(play(t.Context(), f)) // only the process of go test continues with the test
	}
	var out process.Output
	result, err := launch.Run(t.Context(), launch.Options{
		Program: os.Args[0], Args: []string{"-test.run=" + pattern(t.Name()), "-test.count=1"},
		Peers: n, Output: launch.Output{Stdout: &out, Stderr: &out},
	})
	if err != nil {
		t.Fatal(err)
	}
	if result.Status != 0 {
		t.Fatalf("%d processes ended with status %d and printed:\n%s", n, result.Status, out.String())
	}
}

// play is the main function of a process that runProcesses starts. It returns the exit status.
func play(ctx context.Context, f func(ctx context.Context, c *collective.Comm) error) int {
	if err := join(ctx, f); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func join(ctx context.Context, f func(ctx context.Context, c *collective.Comm) error) error {
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	s, err := g.Sessions().Next(ctx, 0)
	if err == nil {
		err = f(ctx, s.Comm)
	}
	return errors.Join(err, g.Close())
}

// pattern returns a pattern that matches only the test with this name and its subtests.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}
