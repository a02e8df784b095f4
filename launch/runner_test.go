package launch

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/elastic"
)

func TestCompareCause(t *testing.T) {
	base := time.Unix(100, 0)
	at := func(index, ms int, sig syscall.Signal) Exit {
		return Exit{Index: index, Code: 1, Signal: sig, at: base.Add(time.Duration(ms) * time.Millisecond)}
	}
	exits := []Exit{at(0, 5, 0), at(1, 1, 0), at(2, 9, syscall.SIGKILL), at(3, 7, syscall.SIGSEGV)}
	rapid.Check(t, func(t *rapid.T) {
		got := rapid.Permutation(exits).Draw(t, "order")
		slices.SortFunc(got, compareCause)
		for i, want := range []int{3, 2, 1, 0} {
			if got[i].Index != want {
				t.Fatalf("place %d has peer %d, want %d", i, got[i].Index, want)
			}
		}
	})
}

func TestExitString(t *testing.T) {
	for _, c := range []struct {
		e    Exit
		want string
	}{
		{Exit{Code: 0}, "exited with status 0"},
		{Exit{Code: 7}, "exited with status 7"},
		{Exit{Code: -1, Signal: syscall.SIGKILL}, "was killed by signal 9 (killed)"},
	} {
		if got := c.e.String(); got != c.want || c.e.failed() != (c.e.Code != 0) {
			t.Errorf("got %q, failed %v, want %q", got, c.e.failed(), c.want)
		}
	}
}

func TestWho(t *testing.T) {
	r := newRoster(startOrder{})
	r.expect(1)
	r.hello(1, elastic.Member{ID: "long-id-abcdefgh"})
	r.learn(known{Members: []elastic.Member{{ID: "id-of-a-stranger", Host: "far"}}})
	if got := r.describe("abcdefgh,stranger,nobody"); got != "peer 1 (abcdefgh), stranger@far, nobody" {
		t.Errorf("got %q", got)
	}
}

// After the last step the shown speed does not change.
func TestProgressAtTheEnd(t *testing.T) {
	var p progress
	now := time.Unix(0, 0)
	for i := int64(1); i <= 5; i++ {
		p.observe(stepEvent(i, 1, 100, 5), now.Add(time.Duration(i)*time.Second))
	}
	want := p.line(now.Add(5 * time.Second))
	if got := p.line(now.Add(time.Hour)); got != want || !strings.Contains(got, " 100 samples/s") {
		t.Errorf("later %q, at the end %q", got, want)
	}
}
