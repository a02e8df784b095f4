package mesh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/internal/shm"
)

// counted is a socket that counts the files that are sent on it.
type counted struct {
	unixStream
	files *atomic.Int64
}

func (c counted) SendFiles(b []byte, files []*os.File) error {
	c.files.Add(int64(len(files)))
	return c.unixStream.SendFiles(b, files)
}

// afterwards returns some of the ranks of one host, before they agree for the next view. Each keeps the files
// of its process and its sockets.
func afterwards(all []*shmGroup, places ...int) []*shmGroup {
	var next []*shmGroup
	v := following(all[0].view, places...)
	for i, place := range places {
		old := all[place]
		s := &shmGroup{host: old.host, view: v, localRank: i, timeout: hang,
			processes: make([]*hostProcess, len(places)), knownFiles: make([]uint64, len(places))}
		for j, other := range places {
			s.ranks = append(s.ranks, j)
			s.conns = append(s.conns, old.conns[other])
		}
		next = append(next, s)
	}
	return next
}

// mustAgree lets the ranks agree to share memory.
func mustAgree(t *testing.T, all []*shmGroup) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	errs := make(chan error)
	for _, s := range all {
		go func() {
			err := s.negotiate(ctx)
			s.host.processes.retain(s.view)
			errs <- err
		}()
	}
	for range all {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

// releaseAll releases the memory of all ranks.
func releaseAll(t *testing.T, all []*shmGroup) {
	t.Helper()
	for _, s := range all {
		if err := s.release(); err != nil {
			t.Error(err)
		}
	}
}

// sumInMemory lets the ranks sum up some numbers in their memory, several times.
func sumInMemory(t *testing.T, all []*shmGroup) {
	t.Helper()
	errs := make(chan error)
	for _, s := range all {
		go func() {
			l := s.segment.Lane(0, s.ranks)
			for call := range 10 {
				sum := []int64{0}
				l.Post(&shm.Header{uint64(call)}, shm.Offsets{}, kernel.Bytes([]int64{int64(call + s.localRank)}))
				err := shm.Small(l, sum, kernel.Add[int64])
				if n := int64(len(all)); err == nil && sum[0] != n*int64(call)+n*(n-1)/2 {
					err = fmt.Errorf("rank %d of %d has the sum %d in call %d", s.localRank, n, sum[0], call)
				}
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range all {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

// Each process gets the files of each other process once, whichever processes join and leave
// between the views.
func TestAgreeAgain(t *testing.T) {
	keepsFiles(t)
	all := crew(t, 4)
	var sent atomic.Int64
	for _, s := range all {
		for i, c := range s.conns {
			if c != nil {
				s.conns[i] = counted{c, &sent}
			}
		}
	}
	now := afterwards(all, 0, 1, 2)
	for _, step := range []struct {
		what   string
		places []int // the places in crew of the ranks that agree
		want   int   // how many files are sent: each rank's own to the first rank, the memory to each, and missing ones
	}{
		{"nobody has any", []int{0, 1, 2}, 2*2 + 2*1 + 2*2*2},
		{"all have all", []int{0, 1, 2}, 2*2 + 2*1},
		{"one joins", []int{0, 1, 2, 3}, 3*2 + 3*1 + 3*2 + 2*2},
		{"the first leaves", []int{1, 2, 3}, 2*2 + 2*1},
		{"the first comes back behind", []int{1, 2, 3, 0}, 3*2 + 3*1 + 2*2},
		{"two leave", []int{1, 0}, 1*2 + 1*1},
		{"one comes back before others", []int{2, 1, 0}, 2*2 + 2*1 + 2*2},
	} {
		sent.Store(0)
		epoch := now[0].view.Epoch
		now = afterwards(all, step.places...)
		for _, s := range now {
			s.view.Epoch = epoch + 1
			for i := range s.conns {
				if s.localRank > 0 && i > 0 {
					s.conns[i] = nil // as findGroup does
				}
			}
		}
		mustAgree(t, now)
		sumInMemory(t, now)
		releaseAll(t, now)
		if sent := int(sent.Load()); sent != step.want {
			t.Errorf("%s: %d files were sent, want %d", step.what, sent, step.want)
		}
	}
}

// A rank that was put out of a view and runs on may write to the memory of that view, and wake its ranks, at any
// later time. Later views have other memory, also if that memory was reserved while the old view lasted.
func TestLateRankOfOldView(t *testing.T) {
	keepsFiles(t)
	all := crew(t, 3)
	old := afterwards(all, 0, 1, 2)
	mustAgree(t, old)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l := old[2].segment.Lane(0, old[2].ranks)
		for i := byte(1); ctx.Err() == nil; i++ {
			for j := range old[2].memory.Bytes() {
				old[2].memory.Bytes()[j] = i
			}
			l.Post(&shm.Header{}, shm.Offsets{}) // the memory now says that all ranks sleep, so Post wakes them
		}
	}()
	for range 10 {
		if err := errors.Join(old[0].release(), old[1].release()); err != nil {
			t.Fatal(err)
		}
		all[0].host.spare.fill(shm.Size(2))
		now := afterwards(all, 0, 1)
		mustAgree(t, now)
		sumInMemory(t, now)
		copy(old, now)
	}
	stop()
	<-done
	releaseAll(t, old)
}

// If a rank dies while its host agrees to share memory, the others keep nothing that disturbs the next view. A
// rank that comes late to the agreement finds that the agreement is over.
func TestAgreeAfterDeath(t *testing.T) {
	for name, m := range misfits() {
		t.Run(name, func(t *testing.T) {
			keepsFiles(t)
			all := crew(t, 3)
			now := afterwards(all, 0, 1)
			mustAgree(t, now)
			releaseAll(t, now)
			all[0].host.spare.fill(shm.Size(3))
			conclude(t, afterwards(all, 0, 1, 2), 2, m.play)
			_ = all[2].conns[0].Reset() // as rank 2 has died by now
			all[0].host.spare.fill(shm.Size(3))
			now = afterwards(all, 0, 1)
			mustAgree(t, now)
			sumInMemory(t, now)
			releaseAll(t, now)
		})
	}
}

// The numbers of descriptors, mappings and goroutines of a process do not grow with the number of its views.
func TestThousandViews(t *testing.T) {
	keepsFiles(t)
	hs, v := startOnHost(t, "auto", "auto", "auto")
	all := slices.Clone(v.Members)
	use := func() (files, maps, goroutines int) {
		fds, err1 := os.ReadDir("/proc/self/fd")
		b, err2 := os.ReadFile("/proc/self/maps")
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return len(fds), strings.Count(string(b), "memfd:elrun"), runtime.NumGoroutine()
	}
	var files, maps, goroutines int
	for i := range 1000 {
		ranks := []int{0, 1, 2}
		switch i % 4 {
		case 1:
			ranks = []int{0, 1}
		case 2:
			ranks = []int{1, 2}
		}
		v = elastic.View{Epoch: v.Epoch + 1, Parent: v.Hash()}
		var ms []*Mesh
		for _, r := range ranks {
			v.Members, ms = append(v.Members, all[r]), append(ms, hs[r])
		}
		ts := mustMeet(t, ms, v)
		wantPath(t, ts, 0, 1, "shm", "")
		endAll(t, ts)
		if i == 20 {
			files, maps, goroutines = use()
		}
	}
	await(t, "the last view to end", func() bool {
		f, m, g := use()
		return f <= files+4 && m <= maps+4 && g <= goroutines+10
	})
	closeAll(t, hs)
}
