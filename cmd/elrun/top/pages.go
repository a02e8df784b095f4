package top

import (
	"fmt"
	"strings"

	"github.com/elrun/elrun/event/timeline"
)

// page returns the lines of a screen that is a text.
func (d drawing) page() []Line {
	switch d.m.place {
	case peerScreen:
		return d.peer()
	case eventScreen:
		return d.event()
	case commandsScreen:
		return d.commands()
	}
	return d.help()
}

// selected returns the peer that is chosen.
func (d drawing) selected() (timeline.Peer, bool) {
	t, _ := d.m.rows(jobScreen)
	if len(t.rows) == 0 {
		return timeline.Peer{}, false
	}
	key := t.rows[t.find(d.m.chosen[jobScreen])].key
	for _, p := range d.m.snapshot.Peers {
		if keyOf(p) == key {
			return p, true
		}
	}
	return timeline.Peer{}, false
}

// peer draws all that is known of the chosen peer.
func (d drawing) peer() []Line {
	p, ok := d.selected()
	if !ok {
		return texts(Plain, "nothing is known of this peer any more")
	}
	lines := profile{p, d.m.snapshot, d.m.past[keyOf(p)], d.m.ASCII, d.m.zone}.lines(d.width)
	return append([]Line{d.line("peer", "")}, lines...)
}

// event draws the chosen event as a whole.
func (d drawing) event() []Line {
	t := events{d.m.snapshot, d.m.zone}.table()
	i := t.find(d.m.chosen[eventsScreen])
	if i >= len(t.rows) {
		return nil
	}
	lines := []Line{d.line("event", ""), {{t.rows[i].cells[0].text + "  " + t.rows[i].cells[1].text, Strong}}}
	return append(lines, texts(Plain, wrap(t.rows[i].cells[2].text, d.width)...)...)
}

// commands draws the commands that change the job. They are for reading: top runs none of them.
func (d drawing) commands() []Line {
	job, peer := d.m.job, "PEER"
	if p, ok := d.selected(); ok && plainWord(p.ID) {
		peer = p.ID
	}
	lines := []Line{d.line("commands that change this job", "")}
	for _, c := range []struct{ command, what string }{
		{"elrun scale " + job + " N", "run N peers on this host"},
		{"elrun kick " + job + " " + peer, "put a peer out for good"},
		{"elrun ticket " + job, "print a ticket, with which peers join from anywhere"},
		{"elrun ticket revoke " + job, "make the tickets of the job invalid"},
		{"elrun checkpoint " + job, "write a checkpoint after the present step"},
		{"elrun stop " + job, "end the job after the present step"},
		{"elrun status " + job + " --peers", "print the peers"},
		{"elrun status " + job + " --paths", "print which path the data takes, and why"},
		{"elrun dashboard " + job, "show the job in a browser"},
	} {
		lines = append(lines, Line{{" " + c.command, Strong}}, Line{{"     " + c.what, Faint}})
	}
	return lines
}

// plainWord reports whether a word of others means nothing but itself to a shell.
func plainWord(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9')
	}) < 0
}

// help draws what keys and columns mean.
func (d drawing) help() (lines []Line) {
	lines = append(lines, Line{{"elrun top", Strong}, {"  keys", Faint}})
	add := func(format string, pairs ...string) {
		for i := 0; i+1 < len(pairs); i += 2 {
			lines = append(lines, Line{{fmt.Sprintf(format, pairs[i]), Strong}, {pairs[i+1], Plain}})
		}
	}
	add(" %-10s",
		"up down", "choose a row; also j and k, page up and down, home and end",
		"enter", "open the chosen job, peer, host or event",
		"esc", "go back",
		"s", "sort by the next column",
		"/", "show only rows with a text",
		"h e l", "hosts, events, links",
		"c", "the commands that change the job",
		"q", "quit; the job goes on")
	lines = append(lines, nil, Line{{"columns", Faint}})
	add(" %-10s",
		"SHARE", "part of the microbatches of the last step",
		"SAMP/S", "samples in a second of computing",
		"COMP WAIT", "ms of the last step: computing, and waiting for others",
		"W-FOR", "time that others have waited for the peer, in all peers' time",
		"CPU MEM", "processors in use, memory of the process",
		"PATH", "kinds of paths to other members",
		"PRED", "the computing of the last step, as it was predicted",
		"USEFUL", "part of the peer's time that was useful: its goodput")
	return lines
}
