package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/elrun/elrun/launch"
)

// pathGroup is pairs of members between two hosts that use the same path, for the same reason.
type pathGroup struct {
	a, b, kind, why string
	encrypted       bool
}

// groupPaths counts pairs by hosts and path, in the order in which they come first. Of two
// members that both tell of their path the first counts.
func groupPaths(members []launch.MemberStatus) (groups []pathGroup, pairs map[pathGroup]int) {
	host := make(map[string]string) // by ID
	for _, h := range byHost(members) {
		for _, m := range h.members {
			host[m.ID] = h.name
		}
	}
	pairs = make(map[pathGroup]int)
	told := make(map[[2]string]bool)
	for _, m := range members {
		for _, p := range m.Paths {
			if pair := [2]string{min(m.ID, p.ID), max(m.ID, p.ID)}; told[pair] {
				continue
			} else {
				told[pair] = true
			}
			g := pathGroup{host[m.ID], host[p.ID], p.Kind, p.Why, p.Encrypted}
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

// writePaths writes which pairs use which path, by hosts, and why none of these is better.
func writePaths(to io.Writer, members []launch.MemberStatus) error {
	groups, pairs := groupPaths(members)
	if len(groups) == 0 {
		_, err := fmt.Fprintln(to, "no path is known: the peers are connecting, or there is one")
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
