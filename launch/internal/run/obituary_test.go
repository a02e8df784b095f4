package run

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/wire"
)

// The peers of other launchers are told of all deaths, however many, and one member is enough. The own
// processes are not asked.
func TestTellDead(t *testing.T) {
	dead := make([]elastic.ID, 2*wire.MaxDead+1)
	for i := range dead {
		dead[i] = peerID(i)
	}
	for name, c := range map[string]struct {
		answers []error // of peer 0, 1 ...; the own one is not asked
		own     []int
		heard   int
		told    bool
	}{
		"two members":             {[]error{nil, nil}, nil, 2 * len(dead), true},
		"a member and a newcomer": {[]error{errors.New("no member"), nil}, nil, len(dead), true},
		"newcomers only":          {[]error{errors.New("no member")}, nil, 0, false},
		"nobody":                  {nil, nil, 0, false},
		"the own process":         {[]error{nil}, []int{os.Getpid()}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			job := testJob(t)
			var mu sync.Mutex
			heard := 0
			for i, wrong := range c.answers {
				control, err := ctl.Serve(ctl.SocketName{Job: job, Index: i, PID: os.Getpid()}, ctl.Services{Bury: func(ids []elastic.ID) (string, error) {
					mu.Lock()
					defer mu.Unlock()
					if wrong == nil {
						heard += len(ids)
					}
					return "dead", wrong
				}})
				if err != nil {
					t.Fatal(err)
				}
				defer control.Close()
			}
			if told, none := tellDead(job, c.own, dead); told != c.told || !none || heard != c.heard {
				t.Errorf("told %v, none %v, %d deaths heard, want %v, %d", told, none, heard, c.told, c.heard)
			}
		})
	}
}
