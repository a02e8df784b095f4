package transfer

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/internal/pause"
)

func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const term = 10 * time.Second
		fired := make(chan time.Time, 10)
		l := newLeases(term, func() { fired <- time.Now() })
		begun := time.Now()
		l.touch("nobody")
		l.renew("a").snapshot = 7
		if n := l.needed(); !maps.Equal(n, map[int64]bool{7: true}) {
			t.Errorf("needed: %v", n)
		}
		_ = pause.For(t.Context(), 4*time.Second)
		l.renew("b")
		_ = pause.For(t.Context(), 4*time.Second)
		l.touch("a")
		for _, want := range []struct {
			at   time.Duration
			left []string
		}{{term, []string{"a", "b"}}, {14 * time.Second, []string{"a"}}, {18 * time.Second, nil}} {
			now := <-fired
			l.end(now)
			if left := slices.Sorted(maps.Keys(l.by)); now.Sub(begun) != want.at || !slices.Equal(left, want.left) {
				t.Errorf("after %v the leases of %v are left, want %v after %v", now.Sub(begun), left, want.left, want.at)
			}
		}
		for i := range maxLeases {
			l.renew(fmt.Sprint(i))
		}
		if l.renew("one more") != nil || l.renew("5") == nil {
			t.Error("too many leases")
		}
		l.stop()
		_ = pause.For(t.Context(), 2*term)
		if l.renew("5") != nil || len(fired) > 0 {
			t.Error("a lease after the end")
		}
	})
}

func TestLeasesFloor(t *testing.T) {
	l := newLeases(time.Hour, func() {})
	defer l.stop()
	none := func(int64) bool { return false }
	five := func(step int64) bool { return step == 5 }
	if got := l.floor(five); got != never {
		t.Errorf("without leases: %d", got)
	}
	*l.renew("copies") = lease{snapshot: 5, after: 5}
	*l.renew("waits") = lease{snapshot: 3, after: 3}
	if before, after := l.floor(none), l.floor(five); before != never || after != 5 {
		t.Errorf("floor %d before the snapshot, %d after it", before, after)
	}
	*l.renew("follows") = lease{snapshot: -1, after: 4}
	if got := l.floor(five); got != 4 {
		t.Errorf("floor %d with a follower", got)
	}
}
