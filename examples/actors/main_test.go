package main

import (
	"regexp"
	"testing"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/launch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// All learners find the machine that pays best, and the actors end without further action.
func TestActors(t *testing.T) {
	said := make(chan string, 2)
	p := program(options{steps: 100, actors: 2}, func(line string) (int, error) {
		said <- line
		return len(line), nil
	})
	result, err := p.Run(t.Context(), launch.Goroutines())
	if err != nil || result.Done == nil || result.Done.Steps != 100 {
		t.Fatalf("got %+v, %v", result, err)
	}
	for range 2 {
		if line := <-said; !regexp.MustCompile(`^after 100 steps: machine 2 with probability 0\.[89]\d\n$`).MatchString(line) {
			t.Errorf("a learner says %q", line)
		}
	}
}
