package run

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/internal/say"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

func TestCompareCause(t *testing.T) {
	base := time.Unix(100, 0)
	at := func(index, ms int, sig syscall.Signal) spec.Exit {
		return spec.Exit{Index: index, Code: 1, Signal: sig, At: base.Add(time.Duration(ms) * time.Millisecond)}
	}
	exits := []spec.Exit{at(0, 5, 0), at(1, 1, 0), at(2, 9, syscall.SIGKILL), at(3, 7, syscall.SIGSEGV)}
	rapid.Check(t, func(t *rapid.T) {
		got := rapid.Permutation(exits).Draw(t, "order")
		slices.SortFunc(got, say.CompareCause)
		for i, want := range []int{3, 2, 1, 0} {
			if got[i].Index != want {
				t.Fatalf("place %d has peer %d, want %d", i, got[i].Index, want)
			}
		}
	})
}

func TestExitString(t *testing.T) {
	for _, c := range []struct {
		e    spec.Exit
		want string
	}{
		{spec.Exit{Code: 0}, "exited with status 0"},
		{spec.Exit{Code: 7}, "exited with status 7"},
		{spec.Exit{Code: -1, Signal: syscall.SIGKILL}, "was killed by signal 9 (killed)"},
	} {
		if got := c.e.String(); got != c.want || c.e.Failed() != (c.e.Code != 0) {
			t.Errorf("got %q, failed %v, want %q", got, c.e.Failed(), c.want)
		}
	}
}

func TestWho(t *testing.T) {
	r := newRoster(wire.StartOrder{})
	r.expect(1)
	r.hello(1, elastic.Member{ID: "long-id-abcdefgh"})
	r.learn(wire.Known{Members: []elastic.Member{{ID: "id-of-a-stranger", Host: "far"}}})
	if got := r.describe("abcdefgh,stranger,nobody"); got != "peer 1 (abcdefgh), stranger@far, nobody" {
		t.Errorf("got %q", got)
	}
}

// After the last step the shown speed does not change.
func TestProgressAtTheEnd(t *testing.T) {
	var p spec.Pace
	now := time.Unix(0, 0)
	for i := int64(1); i <= 5; i++ {
		p.Observe(event.Event{Step: i, Body: event.Step{Loss: 1, Samples: 100, Of: 5}}, now.Add(time.Duration(i)*time.Second))
	}
	want := p.Line(now.Add(5 * time.Second))
	if got := p.Line(now.Add(time.Hour)); got != want || !strings.Contains(got, " 100 samples/s") {
		t.Errorf("later %q, at the end %q", got, want)
	}
}
