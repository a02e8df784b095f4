package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/elrun/elrun/launch"
)

// pathGroup identifies the pairs of members on two hosts that use the same path for the same
// reason.
type pathGroup struct {
	a, b, kind, why string // names of both hosts, kind of path, and why no better path is used
	encrypted       bool
}

// groupPaths counts the pairs of members by group, and returns the groups in the order of first
// occurrence. Both members of a pair may report their path; the first report counts.
func groupPaths(members []launch.MemberStatus) (groups []pathGroup, pairs map[pathGroup]int) {
	host := make(map[string]string) // host name by peer ID
	for _, h := range byHost(members) {
		for _, m := range h.members {
			host[m.ID] = h.name
		}
	}
	pairs = make(map[pathGroup]int)
	told := make(map[[2]string]bool) // pairs of peer IDs that are counted, the lesser ID first
	for _, m := range members {
		for _, p := range m.Paths {
			if pair := [2]string{min(m.ID, p.ID), max(m.ID, p.ID)}; told[pair] {
				continue
			} else {
				told[pair] = true
			}
			g := pathGroup{host[m.ID], host[p.ID], p.Kind, p.Why, p.Encrypted}
			// The order of the hosts does not matter: a pair counts with the group that came first.
			if back := (pathGroup{g.b, g.a, g.kind, g.why, g.encrypted}); pairs[back] > 0 {
				g = back
			}
			if pairs[g]++; !slices.Contains(groups, g) {
				groups = append(groups, g)
			}
		}
	}
	return groups, pairs
}

// writePaths writes a table of the paths between hosts: the number of pairs, and why they use no
// better path.
func writePaths(to io.Writer, members []launch.MemberStatus) error {
	groups, pairs := groupPaths(members)
	if len(groups) == 0 {
		_, err := fmt.Fprintln(to, "no path is known: the peers are still connecting, or there is only one peer")
		return err
	}
	return table(to, "PAIRS\tBETWEEN\tAND\tPATH\tENCRYPTED\tWHY NO BETTER ONE", func(w io.Writer) {
		for _, g := range groups {
			encrypted := "no"
			if g.encrypted {
				encrypted = "yes"
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", pairs[g], text(g.a), text(g.b), text(g.kind), encrypted, text(g.why))
		}
	})
}
