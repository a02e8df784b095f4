package launch

import (
	"slices"
	"testing"

	"github.com/elrun/elrun/elastic"
)

// started returns the peers that get an order for a first view of n members.
func started(letters []letter, n int) []int {
	var out []int
	for _, l := range letters {
		if l.msg.Start != nil && len(l.msg.Start.Peers) == n {
			out = append(out, l.to)
		}
	}
	return out
}

// restarted makes peer i end and come back under another ID.
func restarted(m *meeting, i int) {
	m.exit(i, "was killed", true)
	m.expect(i)
	m.hello(i, elastic.Member{ID: elastic.ID("again-" + string(rune('a'+i)))})
}

// The waiting peers begin anew when the last member is gone, and not before. They wait for a
// running peer that has not said hello yet.
func TestMeetingBeginsAnew(t *testing.T) {
	m := met(t, 3)
	restarted(m, 0)
	m.exit(1, "was killed", true)
	m.expect(1)
	if letters, begin := m.anew(); len(letters)+len(begin) > 0 {
		t.Fatalf("a member lives: %v, %v", letters, begin)
	}
	m.exit(2, "was killed", true)
	if letters, begin := m.anew(); len(letters)+len(begin) > 0 {
		t.Fatalf("peer 1 has not said hello: %v, %v", letters, begin)
	}
	if got := m.hello(1, elastic.Member{ID: "again-b"}); got != nil {
		t.Errorf("it is told %v before the view", got)
	}
	letters, begin := m.anew()
	if !slices.Equal(begin, []int{0, 1}) || !slices.Equal(started(letters, 2), begin) || !letters[0].msg.Start.Sole {
		t.Errorf("got %+v, %v", letters, begin)
	}
	if letters, begin := m.anew(); len(letters)+len(begin) > 0 {
		t.Errorf("they begin twice: %v, %v", letters, begin)
	}
}

// If a peer of another launcher may be a member, the peers do not begin anew.
func TestMeetingWithStrangersDoesNotBeginAnew(t *testing.T) {
	m := met(t, 2)
	m.viewed([]string{peerID(0).Short(), peerID(1).Short(), "stranger"})
	restarted(m, 0)
	m.exit(1, "was killed", true)
	if letters, begin := m.anew(); len(letters)+len(begin) > 0 {
		t.Errorf("got %v, %v", letters, begin)
	}
}

// A peer that waits when the members have finished is told so, once.
func TestMeetingFinished(t *testing.T) {
	m := met(t, 2)
	restarted(m, 0)
	m.complete(1)
	m.exit(1, "exited with status 0", true)
	letters, begin := m.anew()
	if len(letters) != 1 || letters[0].to != 0 || !letters[0].msg.Finished || begin != nil {
		t.Errorf("got %+v, %v", letters, begin)
	}
	if letters, _ := m.anew(); letters != nil {
		t.Errorf("it is told twice: %v", letters)
	}
}

// Peers that run a further program begin together when all have ended the previous one. The deaths
// of the previous processes are reported to the others.
func TestMeetingFurtherProgram(t *testing.T) {
	m := met(t, 2)
	m.complete(0)
	if got := addressees(m.again(0), peerID(0)); !slices.Equal(got, []int{1}) {
		t.Errorf("the end of the first program is told to %v", got)
	}
	m.hello(0, elastic.Member{ID: "again-a"})
	if letters, begin := m.anew(); len(letters)+len(begin) > 0 {
		t.Fatalf("a member lives: %v, %v", letters, begin)
	}
	m.again(1)
	m.hello(1, elastic.Member{ID: "again-b"})
	letters, begin := m.anew()
	if !slices.Equal(begin, []int{0, 1}) || !slices.Equal(started(letters, 2), begin) {
		t.Errorf("got %+v, %v", letters, begin)
	}
}
