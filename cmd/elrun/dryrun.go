package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch"
)

// dryRun prints what a job on other hosts would run where.
func (r *runCommand) dryRun(ctx context.Context, t *terminal, change func(*launch.Options)) error {
	o, err := r.options(t, change)
	if err != nil {
		return err
	}
	plans, err := launch.DryRun(ctx, o)
	if err != nil {
		return err
	}
	var out strings.Builder
	for _, p := range plans {
		out.WriteString(formatPlan(p))
	}
	_, err = fmt.Fprint(t.stdout, out.String())
	return err
}

// formatPlan returns lines about a host, with command lines as a shell takes them.
func formatPlan(p launch.HostPlan) string {
	peers := printable.Plural(p.Peers, "peer", "peers")
	if p.Peers < 0 {
		peers = "a peer for each core"
	}
	lines := []string{fmt.Sprintf("host %s: %s", p.Host, peers), "  here:  " + shellLine(p.Command)}
	if p.Copied != "" {
		lines = append(lines, "  copy:  "+shellLine([]string{p.Copied})+", unless it is there")
	}
	if p.Peers != 0 {
		there := shellLine(slices.Concat(p.Env, p.Program))
		if len(p.Env) > 0 {
			there = "env " + there
		}
		if p.Dir != "" {
			there = "cd " + shellLine([]string{p.Dir}) + " && " + there
		}
		lines = append(lines, "  there: "+there)
	}
	var out strings.Builder
	for _, l := range lines {
		out.WriteString(printable.Line(l) + "\n")
	}
	return out.String()
}

// shellLine returns words as a shell takes them.
func shellLine(words []string) string {
	var all []string
	for _, w := range words {
		if w == "" || strings.Trim(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:@,+%") != "" {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		all = append(all, w)
	}
	return strings.Join(all, " ")
}
