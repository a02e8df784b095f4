// Package top shows jobs in a terminal. A Model is what is shown: it is told of jobs, snapshots and keys, and returns
// the lines of a frame for a size of the screen. It has no clock and does no I/O:
//
//	m := top.New(time.UTC)
//	m.Open("mnist")
//	m.Show(snapshot, time.Now())
//	m.Press("s")
//	fmt.Print(m.Frame(80, 24).Text())
//
// Run drives a Model at a terminal, and Print writes frames or snapshots where there is none. Every figure is one of
// package timeline.
package top
