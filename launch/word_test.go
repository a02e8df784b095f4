package launch

import (
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/elrun/elrun/elastic"
)

// wordVariable is the environment variable that makes the test binary a program that says hello, and how it ends.
const wordVariable = "LAUNCH_TEST_WORD"

// playWord says hello by the ID in the first argument, prints whether it is watched, and ends in the given way.
func playWord(end string) error {
	a, err := openAgent(childFD)
	if err != nil {
		return err
	}
	order, err := a.hello(context.Background(), "job", elastic.Member{ID: elastic.ID(os.Args[1])})
	if err != nil {
		return err
	}
	fmt.Println("watched", order.Watched)
	switch end {
	case "exec":
		return syscall.Exec("/bin/sleep", []string{"sleep", "300"}, os.Environ())
	case "close":
		return a.Close()
	}
	<-a.launcherGone.Done()
	return nil
}

// deathsIn returns the receivers and IDs of messages, which must report deaths.
func deathsIn(t *testing.T, messages []peerMessage) (to []int, ids []elastic.ID) {
	t.Helper()
	for _, m := range messages {
		if m.msg.Dead == "" {
			t.Errorf("message %+v", m)
		}
		to, ids = append(to, m.to), append(ids, m.msg.Dead)
	}
	return to, ids
}

// The end of a program is announced once, to the others: the later end of its process is not announced again, unless the peer has got
// a further ID since.
func TestRendezvousAnnouncesDying(t *testing.T) {
	r := met(t, 3)
	if got := r.dying(1, "another"); got != nil {
		t.Errorf("of another program: %+v", got)
	}
	to, ids := deathsIn(t, r.dying(1, peerID(1)))
	if !slices.Equal(to, []int{0, 2}) || !slices.Equal(ids, []elastic.ID{peerID(1), peerID(1)}) {
		t.Errorf("told %v of %v", to, ids)
	}
	if got := r.dying(1, peerID(1)); got != nil {
		t.Errorf("once more: %+v", got)
	}
	if r.noMemberAlive(); r.peers[1].ended {
		t.Error("the process counts as ended")
	}
	r.hello(1, elastic.Member{ID: "renewed"})
	if to, ids = deathsIn(t, r.recordExit(1, "was killed", true)); !slices.Equal(to, []int{0, 2}) || ids[0] != "renewed" {
		t.Errorf("at the end: told %v of %v", to, ids)
	}
	if got := r.dying(1, peerID(1)); got != nil {
		t.Errorf("after the end: %+v", got)
	}
	if got := r.dying(7, peerID(1)); got != nil {
		t.Errorf("of a peer that never was: %+v", got)
	}
}

// The late report about a program says nothing about a further program of the same command. A program that ends before the first view
// is left to its status.
func TestRendezvousDyingOfAnEarlierProgram(t *testing.T) {
	r := met(t, 2)
	r.replaceProgram(1)
	r.hello(1, elastic.Member{ID: "further"})
	if got := r.dying(1, peerID(1)); got != nil {
		t.Errorf("of the earlier program: %+v", got)
	}
	r = newRendezvous(2, testOrder(), false)
	r.hello(1, elastic.Member{ID: peerID(1)})
	if got := r.dying(1, peerID(1)); got != nil || len(r.dead) > 0 {
		t.Errorf("before the first view: %+v", got)
	}
}
