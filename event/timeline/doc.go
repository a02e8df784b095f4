// Package timeline is the model of a job that its events describe: the peers, the views, series of figures,
// and what each second of each peer was used for (goodput). All that shows a job reads this model, so a
// figure has one definition.
//
// A Job folds events, of any number of elruns and in bounded memory:
//
//	j := timeline.New()
//	lines, err := timeline.Read(j, file, other) // or j.Add(e) for each event
//	s := j.Snapshot()
//	fmt.Println(s.Goodput.Line())
//
// It reads no clock: a time is that of an event. Events of one version ago, which lack some fields, work as far
// as they go.
//
// # The ledger of time
//
// Each process has a cursor: the time from its begin to the cursor is accounted, and each second of it is in
// one Use or parked. A step moves the cursor to its end. The gap before the step gets a use by what the
// events tell of it, and the time of the step is divided by its parts, which are fitted to it. So the uses of
// a peer add up to its time, whatever the events say.
//
// A wait that was reported as a stall is moved from the uses Wait and Communicate to Stalled, and charged to
// the peers that caused it. docs/goodput.md defines the uses.
package timeline
