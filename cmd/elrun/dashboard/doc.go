// Package dashboard serves a page that shows a running job, and acts on it:
//
//	s, err := dashboard.New(job, "tcp", "127.0.0.1:0")
//	fmt.Println(s.Link())
//	err = s.Serve(ctx)
//
// WriteReport writes the same page for a job that has ended, as one file, and WriteComparison one that compares runs.
//
// The page reads snapshots of the job's model, one a second while it is open, and nothing else. It needs no other server: all
// of it is in the program.
//
// # Security
//
// Whoever has the link may do what the user of the job may do. A token of 128 bits is in the link once: it becomes a cookie that scripts
// cannot read and that other sites cannot send. Requests must name the host of the link or the loopback interface, which stops names of other sites that
// resolve to this host, and requests that change the job must come from the page itself. The page runs no inline script and shows
// texts of others as texts only.
package dashboard
