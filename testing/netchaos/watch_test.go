package netchaos

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

// From each host of a job its status has the figures of all peers, though each host has an elrun and a part of the
// peers only. The use of the peers' time is the same from everywhere, but for what passes between two questions.
func TestStatusOfAll(t *testing.T) {
	const hosts, per = 3, 4
	j := newJob(t, newLab(t, hosts), settings{pace: 5 * time.Millisecond})
	j.start(t, per)
	ticket := j.ticket(t, 0)
	for host := 1; host < hosts; host++ {
		j.join(t, host, per, ticket)
	}
	for host := range hosts {
		var s launch.Status
		process.Until(t, "the figures of all peers", func() bool {
			s = launch.Status{}
			text := j.lab.hosts[host].inside(t, "", process.Elrun(), "status", "--json", j.Name)
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				t.Fatal(err)
			}
			if len(s.Members) != hosts*per || s.Goodput == nil || s.Goodput.Peers != hosts*per {
				return false
			}
			for _, m := range s.Members {
				if m.State != "running" || m.StepMS == 0 || m.ComputeMS == 0 || m.Path == "" {
					return false
				}
			}
			return true
		})
		if s.Goodput.Ratio <= 0 {
			t.Errorf("from host %d the goodput is %+v", host, s.Goodput)
		}
	}
	j.finish(t)
}
