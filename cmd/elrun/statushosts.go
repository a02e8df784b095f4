package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/elrun/elrun/cmd/elrun/top"
	"github.com/elrun/elrun/launch"
)

// hostStatus is the members on one host, in rank order. Host names are not unique; the machine ID
// is.
type hostStatus struct {
	name, site string // as the first member reports them
	machine    string // machine ID; "" if the members report none
	members    []launch.MemberStatus
}

// byHost groups members by host, with hosts in the order of their first ranks. Hosts of equal
// names get the beginning of their machine IDs as a suffix.
func byHost(members []launch.MemberStatus) []hostStatus {
	var hosts []hostStatus
	for _, m := range members {
		// Members without a machine ID are grouped by the name of their host.
		i := slices.IndexFunc(hosts, func(h hostStatus) bool { return h.machine == m.Machine && (m.Machine != "" || h.name == m.Host) })
		if i < 0 {
			i = len(hosts)
			hosts = append(hosts, hostStatus{name: m.Host, machine: m.Machine, site: m.Site})
		}
		hosts[i].members = append(hosts[i].members, m)
	}
	count := make(map[string]int)
	for _, h := range hosts {
		count[h.name]++
	}
	for i, h := range hosts {
		if count[h.name] > 1 && h.machine != "" {
			hosts[i].name += "/" + h.machine[:min(6, len(h.machine))]
		}
	}
	return hosts
}

// writeHosts writes a table with a row for each host. Shares and speeds are sums over its
// members; times are the times of the slowest member.
func writeHosts(to io.Writer, members []launch.MemberStatus) error {
	return table(to, "HOST\tSITE\tPEERS\tSTATE\tSHARE\tSAMPLES/S\tCOMP MS\tCOMM MS\tPATH\tSEEN", func(w io.Writer) {
		for _, h := range byHost(members) {
			writeHost(w, h)
		}
	})
}

// writeHost writes the table row of one host.
func writeHost(w io.Writer, h hostStatus) {
	var share, steps int
	var speed, compute, comm, seen float64
	var paths []string
	for _, m := range h.members {
		share += m.Share
		// A member that has a step time has a known share, even if the share is 0.
		if m.StepMS > 0 {
			steps++
		}
		speed += m.Speed
		compute, comm = max(compute, m.ComputeMS), max(comm, m.CommMS)
		for _, kind := range strings.Split(m.Path, ",") {
			if kind != "" && !slices.Contains(paths, kind) {
				paths = append(paths, kind)
			}
		}
		// If the value of one member is unknown the host's value is unknown. Otherwise the longest
		// time counts.
		if seen < 0 || m.SeenMS < 0 {
			seen = -1
		} else {
			seen = max(seen, m.SeenMS)
		}
	}
	shares := countText(share)
	if steps > 0 {
		shares = fmt.Sprint(share)
	}
	slices.Sort(paths)
	fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", text(h.name), text(h.site), len(h.members), top.States(h.members), shares,
		measureText(speed, 0), measureText(compute, 1), measureText(comm, 1), list(paths), formatSeen(seen))
}

// maxLine is the maximum length of a line of elrun status, in bytes. Names and reasons from other
// hosts may have any length.
const maxLine = 200

// lineTruncator is a writer that truncates lines longer than maxLine.
type lineTruncator struct {
	to   io.Writer
	line []byte // the incomplete last line
}

// Write implements io.Writer. It buffers an incomplete line until its end is written, because a
// table comes in several writes.
func (l *lineTruncator) Write(b []byte) (int, error) {
	for _, c := range b {
		if l.line = append(l.line, c); c != '\n' {
			continue
		}
		// Truncate at the beginning of a character, so that the line stays valid UTF-8.
		line := l.line[:len(l.line)-1]
		if len(line) > maxLine {
			cut := maxLine - len("...")
			for !utf8.RuneStart(line[cut]) {
				cut--
			}
			line = append(line[:cut:cut], "..."...)
		}
		l.line = l.line[:0]
		if _, err := fmt.Fprintf(l.to, "%s\n", line); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// shownPeers is the number of peers that a line names.
const shownPeers = 3

// shortList returns a list of peers as text, shortened to shownPeers.
func shortList(ids []string) string {
	// If only one more peer is left it is named, too: "and 1 more" would be no shorter.
	if more := len(ids) - shownPeers; more > 1 {
		return fmt.Sprintf("%s and %d more", list(ids[:shownPeers]), more)
	}
	return list(ids)
}
