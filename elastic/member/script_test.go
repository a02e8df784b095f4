package member_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/elrun/elrun/elastic/member"
)

// Every file in testdata/scripts is a scenario: blocks of commands, a line "----", and the output
// of the machines. -rewrite replaces the recorded output; read the new output before you commit it.
// The commands are:
//
//	first a b c            machines of a first view
//	joiner d a b           a machine that wants to join and asks a and b
//	any a                  before first: --quorum any for all that follow
//	suspect a b c          a is refused at b and c;   trust a b, dead a b, met a b likewise
//	silent a b             a receives nothing from b
//	sole a                 a's launcher has started all peers
//	leave a
//	renew a 1              the session of a's view of epoch 1 broke
//	stable a 7             a has 7 stable steps
//	tick a 5
//	deliver                all messages, and the messages that they cause, until none are left
//	deliver a>b promise    the oldest such message in flight; parts may be left out or *
//	drop a>b promise 2     loses the two oldest such messages; 0 for all
//	again a>b promise      delivers the message and keeps it in flight
//	cut a b c              from now on no message passes between a and b or c; heal ends the cut
//	crash a                a stops, and messages to it are lost
//	list                   messages in flight
//	views
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/scripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, mistakes := runScript(string(text))
			for _, m := range mistakes { // even with -rewrite, because a script whose commands fail checks nothing
				t.Error(m)
			}
			if flagged[bool]("rewrite") {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("it prints (-rewrite accepts that):\n%s", got)
			}
		})
	}
}

// script is a scenario in progress.
type script struct {
	ids      []member.ID // in order of their start
	machines map[member.ID]*member.Machine
	dead     map[member.ID]bool
	any      bool
	cut      map[[2]member.ID]bool
	way      []member.Message // in flight, oldest first
	out      strings.Builder
	mistakes []string // commands that could not be carried out
}

// runScript returns the script with its present output, and the commands that could not be carried
// out.
func runScript(text string) (file string, mistakes []string) {
	s := &script{machines: make(map[member.ID]*member.Machine), dead: make(map[member.ID]bool), cut: make(map[[2]member.ID]bool)}
	var b strings.Builder
	output := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "----":
			output = true
			fmt.Fprintf(&b, "----\n%s", s.out.String())
			s.out.Reset()
		case line == "":
			output = false
			b.WriteString("\n")
		case output: // recorded by an earlier run
		default:
			b.WriteString(line + "\n")
			if words := strings.Fields(line); words[0] != "#" {
				s.run(words[0], words[1:])
			}
		}
	}
	return b.String(), s.mistakes
}

func (s *script) run(command string, words []string) {
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	id := member.ID(arg(0))
	switch command {
	case "first":
		s.first(words)
	case "joiner":
		c := member.Config{Self: member.Member{ID: id}, Keys: fakeKeys(id)}
		for _, w := range words[1:] {
			c.Contacts = append(c.Contacts, member.ID(w))
		}
		s.start(id, member.NewJoiner(c))
	case "any":
		s.any = true
	case "suspect", "silent", "trust", "dead", "met":
		for _, w := range words[1:] {
			s.step(id, about(command, member.ID(w)))
		}
	case "sole":
		s.step(id, member.Sole{On: true})
	case "leave":
		s.step(id, member.Leave{})
	case "renew":
		s.step(id, member.Renew{Epoch: uint64(number(arg(1)))})
	case "stable":
		s.step(id, member.Stable{Steps: uint64(number(arg(1)))})
	case "tick":
		for range number(arg(1)) {
			s.machines[id].Tick()
			s.drain(id)
		}
	case "crash":
		s.dead[id] = true
	case "cut":
		for _, w := range words[1:] {
			s.cut[[2]member.ID{id, member.ID(w)}] = true
			s.cut[[2]member.ID{member.ID(w), id}] = true
		}
		s.way = slices.DeleteFunc(s.way, s.lost)
	case "heal":
		clear(s.cut)
	default:
		s.runMessages(command, arg)
	}
}

// runMessages carries out the commands about messages in flight.
func (s *script) runMessages(command string, arg func(int) string) {
	switch command {
	case "deliver":
		if arg(0) != "" {
			s.deliver(arg(0), arg(1), false)
			return
		}
		for range 1000 {
			if len(s.way) == 0 {
				return
			}
			s.deliver("*", "*", false)
		}
		s.mistake("deliver: it never ends")
	case "again":
		s.deliver(arg(0), arg(1), true)
	case "drop":
		s.drop(arg(0), arg(1), number(arg(2)))
	case "list":
		for _, m := range s.way {
			s.print("%s > %s", show(m), m.To)
		}
	case "views":
		for _, id := range s.ids {
			if !s.dead[id] {
				s.print("%s: %v, out: %v, settled: %v", id, s.machines[id].View(), s.machines[id].Out(), s.machines[id].Settled())
			}
		}
	default:
		s.mistake("unknown command %s", command)
	}
}

func number(word string) int {
	n, err := strconv.Atoi(word)
	if err != nil {
		return 1
	}
	return n
}

// about returns the event of a command about a peer.
func about(command string, id member.ID) member.Event {
	switch command {
	case "suspect":
		return member.Suspect{Peer: id, Gone: true}
	case "silent":
		return member.Suspect{Peer: id}
	case "trust":
		return member.Trust{Peer: id}
	case "met":
		return member.Met{Peer: id}
	}
	return member.Dead{Peer: id}
}

func (s *script) print(format string, args ...any) {
	fmt.Fprintf(&s.out, format+"\n", args...)
}

// mistake records a command that could not be carried out.
func (s *script) mistake(format string, args ...any) {
	s.mistakes = append(s.mistakes, fmt.Sprintf(format, args...))
}

func (s *script) first(ids []string) {
	var first []member.Member
	for _, id := range ids {
		first = append(first, member.Member{ID: member.ID(id)})
	}
	for _, p := range first {
		m, err := member.New(member.Config{Self: p, Any: s.any, Keys: fakeKeys(p.ID)}, first)
		if err != nil {
			s.mistake("first: %v", err)
			return
		}
		s.start(p.ID, m)
	}
}

func (s *script) start(id member.ID, m *member.Machine) {
	s.ids = append(s.ids, id)
	s.machines[id] = m
	s.drain(id)
}

func (s *script) step(id member.ID, e member.Event) {
	s.machines[id].Step(e)
	s.drain(id)
}

// drain queues the messages of a machine, prints its other output, and admits all newcomers that
// ask.
func (s *script) drain(id member.ID) {
	r := s.machines[id].Ready()
	for _, v := range r.Views {
		s.print("%s enters %v (%v)", id, v, v.Reason)
	}
	s.way = slices.DeleteFunc(append(s.way, r.Messages...), s.lost)
	for _, n := range r.Notices {
		if n.Kind == member.Asked {
			s.print("%s admits %s", id, n.Request.Member.ID)
			s.step(id, member.Admit{Request: n.Request})
			continue
		}
		s.print("%s: %v %s", id, n.Kind, n.Why)
	}
}

// lost reports whether a cut loses a message.
func (s *script) lost(m member.Message) bool { return s.cut[[2]member.ID{m.From, m.To}] }

// find returns the index of the oldest message that matches, or -1.
func (s *script) find(route, kind string) int {
	return slices.IndexFunc(s.way, func(m member.Message) bool {
		from, to, _ := strings.Cut(route, ">")
		fits := func(word, value string) bool { return word == "" || word == "*" || word == value }
		return fits(from, string(m.From)) && fits(to, string(m.To)) && fits(kind, m.Kind.String())
	})
}

func (s *script) deliver(route, kind string, keep bool) {
	i := s.find(route, kind)
	if i < 0 {
		s.mistake("deliver %s %s: no such message", route, kind)
		return
	}
	m := s.way[i]
	if !keep {
		s.way = slices.Delete(s.way, i, i+1)
	}
	if to := s.machines[m.To]; to == nil || s.dead[m.To] {
		return
	}
	s.print("%s > %s", show(m), m.To)
	s.step(m.To, member.Received{Message: m})
}

// drop loses n matching messages, or all if n is 0.
func (s *script) drop(route, kind string, n int) {
	for dropped := 0; n == 0 || dropped < n; dropped++ {
		i := s.find(route, kind)
		if i < 0 {
			return
		}
		s.way = slices.Delete(s.way, i, i+1)
	}
}
