package member

// reporter sends this member's reports to the first proposer in rank order. Any message may be
// lost, so a report with content is repeated until a view settles it.
type reporter struct {
	*membership
	local  *localState
	quorum *quorumMonitor

	version uint64 // version of the last report sent
	at      uint64 // tick of the last report sent
	times   int    // number of times that this version was sent
	// hadContent is set if the last report had content. The next report is then sent even if it is
	// empty.
	hadContent bool
}

// enter begins a view, in which no report was sent yet.
func (r *reporter) enter() { r.hadContent = false }

// report sends the report to the first reachable proposer in rank order, and repeats it with
// exponential backoff while the view does not change. From the third time on the receivers are all
// reachable proposers before this member in turn, as the first may be stuck although not all
// members suspect it.
func (r *reporter) report() {
	if r.local.version == r.version && (!r.hadContent || r.tick < r.at+r.cfg.Retry<<min(r.times, 4)) {
		return
	}
	report := r.local.report()
	var to []ID
	if !report.empty() || r.hadContent {
		to = r.quorum.ahead()
	}
	if len(to) == 0 { // nothing to report, or this member is the first proposer itself
		r.version = r.local.version
		return
	}
	if r.local.version != r.version {
		r.times = 0
	}
	r.hadContent, r.version, r.at = !report.empty(), r.local.version, r.tick
	r.times++
	r.send(Message{Kind: Tell, To: to[max(0, r.times-2)%len(to)], Report: report})
}
