package launch

import (
	"fmt"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
)

const (
	// plainPeriod is the interval of progress lines without a terminal.
	plainPeriod = 5 * time.Second
	// maxPrintedNotes bounds the number of different notes that a launcher prints.
	maxPrintedNotes = 100
)

// reporter tells people at the launcher about the job: in lines, and in a progress line. Several
// launchers of a job may share one screen; then only the leading launcher prints lines about the
// whole job. The launcher's loop owns it; the console behind it takes lines from any goroutine.
type reporter struct {
	console *console
	live    bool        // people see a terminal, with a progress line that is redrawn
	leads   func() bool // whether this launcher leads; nil without other launchers

	progress      progress
	shown         int64           // step of the last plain progress line
	showAt        time.Time       // time of the next plain progress line; zero before the first tick
	printedNotes  map[string]bool // notes of peers that have been printed
	sitesReported bool            // a line has said that sites are ignored
}

// newReporter returns a reporter on the outputs of o. leads reports whether this launcher is the
// leading launcher.
func newReporter(out *Output, leads func() bool) *reporter {
	r := &reporter{console: newConsole(out.Stdout, out.Stderr, out.Events, out.Live), live: out.Live}
	if out.Shared {
		r.leads = leads
	}
	return r
}

// printf prints a line of the launcher.
func (r *reporter) printf(format string, args ...any) { r.console.say(fmt.Sprintf(format, args...)) }

// lines prints lines of the launcher.
func (r *reporter) lines(lines []string) {
	for _, s := range lines {
		r.console.say(s)
	}
}

// shared prints lines about the whole job, unless another launcher does.
func (r *reporter) shared(lines []string) {
	if r.isLeading() {
		r.lines(lines)
	}
}

// isLeading reports whether this launcher prints the lines about the whole job.
func (r *reporter) isLeading() bool { return r.leads == nil || r.leads() }

// note prints a note of a peer, once for all peers.
func (r *reporter) note(from int, text string) {
	if r.printedNotes == nil {
		r.printedNotes = make(map[string]bool)
	}
	// Peers of one host usually report the same cause; the bound is for peers that invent new
	// texts.
	if r.printedNotes[text] || len(r.printedNotes) >= maxPrintedNotes {
		return
	}
	r.printedNotes[text] = true
	r.printf("peer %d: %s", from, text)
}

// sites reports, once, that sites are ignored because only some members name one.
func (r *reporter) sites(members []elastic.Member) {
	if text := formatSites(members); text != "" && !r.sitesReported {
		r.sitesReported = true
		r.printf("%s", text)
	}
}

// formatSites reports that sites are ignored because only some members have one; "" if all or none
// have one.
func formatSites(members []elastic.Member) string {
	without := 0
	for _, m := range members {
		if m.Site == "" {
			without++
		}
	}
	if without == 0 || without == len(members) {
		return ""
	}
	return fmt.Sprintf("--site is ignored while %s no site: name one for all peers", plural(without, "peer names", "peers name"))
}

// observe follows the steps of the job, from an event of any peer.
func (r *reporter) observe(e event.Event, now time.Time) { r.progress.observe(e, now) }

// beginAgain clears the step of a group that has ended, because the first step of the next group
// may be lower.
func (r *reporter) beginAgain() { r.progress, r.shown = progress{}, 0 }

// showProgress redraws the progress line, or without a terminal prints a line if there is a new
// step.
func (r *reporter) showProgress(now time.Time) {
	if !r.live {
		if r.showAt.IsZero() {
			r.showAt = now.Add(plainPeriod)
		}
		if now.Before(r.showAt) {
			return
		}
		r.showAt = now.Add(plainPeriod)
	}
	s := r.progress.line(now)
	// An empty line erases a progress line that was drawn while this launcher was the leading
	// launcher.
	if !r.isLeading() {
		s = ""
	}
	if !r.live && (s == "" || r.progress.step == r.shown) {
		return
	}
	r.shown = r.progress.step
	r.console.progress(s)
}
