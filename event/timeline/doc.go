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
// # Logs
//
// Read takes logs in any number: one elrun's log has only the events of its own peers. It merges them by time,
// with a window in which lines may be out of order, and memory that does not grow with the logs. A goroutine for
// each log decodes lines in batches. Lines of steps, which are nearly all, have a decoder of their own; FuzzDecode
// compares it with package json. The order of lines within the window does not change the result, and neither do
// logs that are given twice.
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
