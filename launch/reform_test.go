package launch

import (
	"slices"
	"testing"

	"github.com/elrun/elrun/elastic"
)

// started returns the peers that get an order for a first view of n members.
func started(messages []peerMessage, n int) []int {
	var out []int
	for _, l := range messages {
		if l.msg.Start != nil && len(l.msg.Start.Peers) == n {
			out = append(out, l.to)
		}
	}
	return out
}

// restarted makes peer i end and say hello again under another ID.
func restarted(r *rendezvous, i int) {
	r.recordExit(i, "was killed", true)
	r.expect(i)
	r.hello(i, elastic.Member{ID: elastic.ID("again-" + string(rune('a'+i)))})
}

// The waiting peers form a new first view only when the last member has ended. They wait for a
// running peer that has not said hello yet.
func TestRendezvousReforms(t *testing.T) {
	r := met(t, 3)
	restarted(r, 0)
	r.recordExit(1, "was killed", true)
	r.expect(1)
	if messages, begin := r.reform(); len(messages)+len(begin) > 0 {
		t.Fatalf("a member lives: %v, %v", messages, begin)
	}
	r.recordExit(2, "was killed", true)
	if messages, begin := r.reform(); len(messages)+len(begin) > 0 {
		t.Fatalf("peer 1 has not said hello: %v, %v", messages, begin)
	}
	if got := r.hello(1, elastic.Member{ID: "again-b"}); got != nil {
		t.Errorf("it is told %v before the view", got)
	}
	messages, begin := r.reform()
	if !slices.Equal(begin, []int{0, 1}) || !slices.Equal(started(messages, 2), begin) || !messages[0].msg.Start.Sole {
		t.Errorf("got %+v, %v", messages, begin)
	}
	if job := messages[0].msg.Start.Job; job != "job" {
		t.Errorf("the peers that begin anew get the job %q", job)
	}
	if messages, begin := r.reform(); len(messages)+len(begin) > 0 {
		t.Errorf("they begin twice: %v, %v", messages, begin)
	}
}

// If a peer of another launcher may be a member, the waiting peers form no new first view.
func TestRendezvousWithForeignMembersDoesNotReform(t *testing.T) {
	r := met(t, 2)
	r.recordView([]string{peerID(0).Short(), peerID(1).Short(), "stranger"})
	restarted(r, 0)
	r.recordExit(1, "was killed", true)
	if messages, begin := r.reform(); len(messages)+len(begin) > 0 {
		t.Errorf("got %v, %v", messages, begin)
	}
}

// A peer that waits when the members have finished receives finished once.
func TestRendezvousFinished(t *testing.T) {
	r := met(t, 2)
	restarted(r, 0)
	r.complete(1)
	r.recordExit(1, "exited with status 0", true)
	messages, begin := r.reform()
	if len(messages) != 1 || messages[0].to != 0 || !messages[0].msg.Finished || begin != nil {
		t.Errorf("got %+v, %v", messages, begin)
	}
	if messages, _ := r.reform(); messages != nil {
		t.Errorf("it is told twice: %v", messages)
	}
}

// Peers that run a further program form a new first view when all have ended the previous program.
// The deaths of the previous processes are reported to the other peers.
func TestRendezvousFurtherProgram(t *testing.T) {
	r := met(t, 2)
	r.complete(0)
	if got := addressees(r.replaceProgram(0), peerID(0)); !slices.Equal(got, []int{1}) {
		t.Errorf("the end of the first program is told to %v", got)
	}
	r.hello(0, elastic.Member{ID: "again-a"})
	if messages, begin := r.reform(); len(messages)+len(begin) > 0 {
		t.Fatalf("a member lives: %v, %v", messages, begin)
	}
	r.replaceProgram(1)
	r.hello(1, elastic.Member{ID: "again-b"})
	messages, begin := r.reform()
	if !slices.Equal(begin, []int{0, 1}) || !slices.Equal(started(messages, 2), begin) {
		t.Errorf("got %+v, %v", messages, begin)
	}
	// Its peers must not take the checkpoints of the program before for their own.
	if job := messages[0].msg.Start.Job; job == "job" || job != r.answerJoin(1)[0].msg.Start.Job {
		t.Errorf("the next program gets the job %q", job)
	}
}
