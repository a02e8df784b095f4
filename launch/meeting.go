package launch

import (
	"fmt"

	"github.com/elrun/elrun/elastic"
)

// meeting collects the hellos of the peers and decides what they are told. It is
// pure and not safe for concurrent use.
//
//	waiting --all said hello--> started: all get the list of peers
//	   |
//	   +--one ended--> broken: all who said or say hello are told to give up
//
// A program that never says hello is no peer, and needs no answer: if none does, the
// meeting stays in waiting and the programs simply run to their ends. A started group
// notices the loss of a member by itself, and sooner.
type meeting struct {
	members []*elastic.Member // by local index; nil until hello
	quiet   []bool            // ended, or told all there is to tell
	started bool
	broken  string // why the group cannot be formed
}

// letter is a message for one peer.
type letter struct {
	to  int
	msg message
}

func newMeeting(n int) *meeting {
	return &meeting{members: make([]*elastic.Member, n), quiet: make([]bool, n)}
}

// hello notes that peer i wants to join as m, and returns what to send now.
func (m *meeting) hello(i int, self elastic.Member) []letter {
	if m.members[i] != nil {
		return []letter{{i, message{Abort: "a second hello from one process"}}}
	}
	self.Index = i
	m.members[i] = &self
	if m.broken != "" {
		return m.abort()
	}
	all := make([]elastic.Member, 0, len(m.members))
	for _, p := range m.members {
		if p == nil {
			return nil
		}
		all = append(all, *p)
	}
	m.started = true
	return m.tell(message{Peers: all})
}

// exit notes that peer i ended, how as in "exited with status 3", and returns what
// to send now.
func (m *meeting) exit(i int, how string) []letter {
	m.quiet[i] = true
	if m.started {
		return nil // its group will notice
	}
	if m.broken == "" {
		m.broken = fmt.Sprintf("peer %d %s before all had joined", i, how)
	}
	return m.abort()
}

func (m *meeting) abort() []letter { return m.tell(message{Abort: m.broken}) }

// tell addresses msg to all that said hello, still run and have no answer yet.
func (m *meeting) tell(msg message) []letter {
	var out []letter
	for i, p := range m.members {
		if p != nil && !m.quiet[i] {
			m.quiet[i] = true
			out = append(out, letter{i, msg})
		}
	}
	return out
}

// wanted reports whether a peer asked to join a group that was never formed.
func (m *meeting) wanted() bool {
	for _, p := range m.members {
		if p != nil && !m.started {
			return true
		}
	}
	return false
}

// index returns the local index of the peer with this short ID, or -1.
func (m *meeting) index(short string) int {
	for i, p := range m.members {
		if p != nil && p.ID.Short() == short {
			return i
		}
	}
	return -1
}
