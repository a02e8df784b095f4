package say

import (
	"fmt"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch/spec"
)

const (
	// plainPeriod is the interval of progress lines without a terminal.
	plainPeriod = 5 * time.Second
	// maxPrintedNotes bounds the number of different notes that a launcher prints.
	maxPrintedNotes = 100
)

// Reporter tells people at the launcher about the job: in lines, and in a progress line. Several
// launchers of a job may share one screen; then only the leading launcher prints lines about the
// whole job. The launcher's loop owns it; the console behind it takes lines from any goroutine.
type Reporter struct {
	Console *Console
	live    bool // people see a terminal, with a progress line that is redrawn
	ascii   bool // it has the characters of ASCII only
	line    liveLine
	leads   func() bool // whether this launcher leads; nil without other launchers

	Progress      spec.Pace
	shown         int64           // step of the last plain progress line
	showAt        time.Time       // time of the next plain progress line; zero before the first tick
	printedNotes  map[string]bool // notes of peers that have been printed
	sitesReported bool            // a line has said that sites are ignored
}

// NewReporter returns a reporter on the outputs of o. leads reports whether this launcher is the
// leading launcher.
func NewReporter(out *spec.Output, leads func() bool) *Reporter {
	r := &Reporter{Console: NewConsole(out.Stdout, out.Stderr, out.Events, out.Live), live: out.Live, ascii: out.ASCII}
	if out.Shared {
		r.leads = leads
	}
	return r
}

// Printf prints a line of the launcher.
func (r *Reporter) Printf(format string, args ...any) { r.Console.Say(fmt.Sprintf(format, args...)) }

// Lines prints lines of the launcher.
func (r *Reporter) Lines(Lines []string) {
	for _, s := range Lines {
		r.Console.Say(s)
	}
}

// Shared prints lines about the whole job, unless another launcher does.
func (r *Reporter) Shared(lines []string) {
	if r.IsLeading() {
		r.Lines(lines)
	}
}

// IsLeading reports whether this launcher prints the lines about the whole job.
func (r *Reporter) IsLeading() bool { return r.leads == nil || r.leads() }

// Note prints a note of a peer, once for all peers.
func (r *Reporter) Note(from int, text string) {
	if r.printedNotes == nil {
		r.printedNotes = make(map[string]bool)
	}
	// Peers of one host usually report the same cause; the bound is for peers that invent new
	// texts.
	if r.printedNotes[text] || len(r.printedNotes) >= maxPrintedNotes {
		return
	}
	r.printedNotes[text] = true
	r.Printf("peer %d: %s", from, text)
}

// Sites reports, once, that sites are ignored because only some members name one.
func (r *Reporter) Sites(members []elastic.Member) {
	if text := FormatSites(members); text != "" && !r.sitesReported {
		r.sitesReported = true
		r.Printf("%s", text)
	}
}

// FormatSites reports that sites are ignored because only some members have one; "" if all or none
// have one.
func FormatSites(members []elastic.Member) string {
	without := 0
	for _, m := range members {
		if m.Site == "" {
			without++
		}
	}
	if without == 0 || without == len(members) {
		return ""
	}
	return fmt.Sprintf("--site is ignored while %s no site: name one for all peers", printable.Plural(without, "peer names", "peers name"))
}

// Observe follows the steps of the job, from an event of any peer.
func (r *Reporter) Observe(e event.Event, now time.Time) {
	r.Progress.Observe(e, now)
	r.line.observe(&r.Progress)
}

// BeginAgain clears the step of a group that has ended, because the first step of the next group
// may be lower.
func (r *Reporter) BeginAgain() { r.Progress, r.shown, r.line = spec.Pace{}, 0, liveLine{} }

// ShowProgress redraws the progress line, or without a terminal prints a line if there is a new
// step.
func (r *Reporter) ShowProgress(now time.Time) {
	if !r.live {
		if r.showAt.IsZero() {
			r.showAt = now.Add(plainPeriod)
		}
		if now.Before(r.showAt) {
			return
		}
		r.showAt = now.Add(plainPeriod)
	}
	s := r.Progress.Line(now)
	// An empty line erases a progress line that was drawn while this launcher was the leading
	// launcher.
	if !r.IsLeading() {
		s = ""
	}
	if !r.live && (s == "" || r.Progress.Step == r.shown) {
		return
	}
	r.shown = r.Progress.Step
	if r.live {
		s = r.line.draw(s, &r.Progress, r.Console.columns(), r.ascii)
	}
	r.Console.progress(s)
}
