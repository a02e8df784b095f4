package mesh

import (
	"slices"
	"testing"
)

// In a large view the ranks of a host share memory, although most of them have no lanes with each
// other. If one rank cannot share memory then no rank does, and no rank waits until the time limit.
func TestShareOfMany(t *testing.T) {
	const ranks = maxFullMesh + 4
	for name, c := range map[string]struct {
		change func(ms []*Mesh, ways []string)
		shared bool
	}{
		"all":        {func([]*Mesh, []string) {}, true},
		"unwilling":  {func(_ []*Mesh, ways []string) { ways[ranks-3] = "unix" }, false},
		"elsewhere":  {func(ms []*Mesh, _ []string) { change(ms, ranks-3) }, false},
		"first away": {func(ms []*Mesh, _ []string) { change(ms, 0) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			ways := slices.Repeat([]string{"auto"}, ranks)
			c.change(nil, ways)
			ms, v := startOnHost(t, ways...)
			c.change(ms, ways)
			for i := range v.Members {
				v.Members[i].Host = "here"
			}
			ts := mustMeet(t, ms, v)
			for rank, e := range ts {
				s := e.Shared()
				if (s != nil) != c.shared || s != nil && len(s.Ranks) != ranks {
					t.Errorf("rank %d shares %v, want all: %t", rank, s, c.shared)
				}
				if s != nil {
					wantPath(t, ts, rank, (rank+7)%ranks, "shm", "")
				}
			}
			talk(t, ts)
			endAll(t, ts)
			for _, e := range ts {
				if s := e.box.Shared(); s != nil {
					if err := s.Release(); err != nil {
						t.Error(err)
					}
				}
			}
			closeAll(t, ms)
		})
	}
}

// change gives a process another kernel ID than the other processes of the view have.
func change(ms []*Mesh, i int) {
	if ms != nil {
		ms[i].cfg.KernelID = [32]byte{2}
	}
}
