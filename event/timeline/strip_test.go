package timeline

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// However long a strip gets, its intervals have all that was spent, each use where it was.
func TestStrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s strip
		begin := instantOf(at(0))
		var want Uses
		for now := begin; ; {
			length := time.Duration(rapid.Int64Range(1, int64(20*time.Minute)).Draw(t, "length"))
			u := Use(rapid.IntRange(0, uses-1).Draw(t, "use"))
			var spent Uses
			spent[u] = length
			s.add(now, now.plus(length), spent)
			want[u] += length
			// The last interval that is all in this use has its letter.
			x := s.export()
			if n := len(x.Uses); n == 0 || n > stripIntervals {
				t.Fatalf("%d intervals", n)
			}
			if i := int(now.plus(length/2).since(begin) / s.width); length > 4*s.width && x.Uses[i] != u.Letter() {
				t.Fatalf("the middle of %v of %v is %c in %s", length, u, x.Uses[i], x.Uses)
			}
			if now = now.plus(length); now.since(begin) > time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "end")) {
				break
			}
		}
		var got Uses
		for _, u := range s.intervals {
			got.add(u)
		}
		for u := range want {
			if d := math.Abs(float64(got[u] - want[u])); d > float64(time.Millisecond) {
				t.Fatalf("%v: %v, want %v", Use(u), got[u], want[u])
			}
		}
	})
}

// Each use has a letter of its own, and what is no use a dot.
func TestLetters(t *testing.T) {
	seen := ""
	for u := range Use(uses) {
		if strings.IndexByte(seen, u.Letter()) >= 0 || u.Letter() == '.' {
			t.Errorf("%v has the letter %c", u, u.Letter())
		}
		seen += string(u.Letter())
	}
	if Use(-1).Letter() != '.' || Use(uses).Letter() != '.' {
		t.Error("what is no use has a letter")
	}
}

// The strips of a job with a death and a join tell who did what when.
func TestStripsOfJob(t *testing.T) {
	l := churned()
	for _, p := range l.model().Snapshot().Peers {
		if p.Strip.Uses == "" || p.Strip.WidthMS != 250 {
			t.Errorf("%s has the strip %+v", p.ID, p.Strip)
		}
	}
}
