// Package launch starts the peers of a job as local processes, and is what each of
// these processes uses to join the others.
//
// A training program calls Init and needs nothing else of this package. Started by
// elrun it becomes one peer among several; started alone it is a group of one:
//
//	g, err := launch.Init(ctx)
//	if err != nil {
//		return err
//	}
//	defer g.Close()
//	s, err := g.Next(ctx, 0)
//
// Run is the other side, the launcher:
//
//	res, err := launch.Run(ctx, launch.Options{Program: "./train", Peers: 4})
//
// # Environment
//
// The launcher sets all of these, Init reads them:
//
//	ELRUN_JOB        name of the job: letters, digits, '.', '_' and '-', at most 40
//	ELRUN_INDEX      local index of this peer, 0 <= index < np
//	ELRUN_NP         number of peers that the launcher started
//	ELRUN_FD         number of an open stream socket to the launcher
//	ELRUN_TRANSPORT  auto or p2p
//	GOMAXPROCS       max(1, cores / np), unless the launcher's environment has one
//
// # Between launcher and peer
//
// Over the socket go JSON messages, one a line. A peer says hello with its ID and
// addresses; when all have, the launcher sends every one the whole list, whose order
// is that of the ranks. From then on the peer sends its events. If a program ends
// before it said hello while others wait for it, those are told why and give up.
//
// The launcher never writes to this socket without need, and a peer that sees it
// end knows that the launcher died: it closes its group, so that pending calls fail,
// and 1.5 s later it exits with status 1 if the program has not done so. That exit is
// the only one in this package. A program that never calls Init gets SIGTERM
// on Linux when its launcher dies.
//
// # Control socket
//
// Every peer answers questions about its job on a private Unix socket: on Linux an
// abstract one, which leaves nothing in the file system, elsewhere one in a directory
// that only its user may enter. A request is one JSON object on a line; the answer is
// one JSON object. Jobs, QueryStatus and Stop ask.
//
//	{"request":"status"}   {"status":{...}}: the job as this peer sees it
//	{"request":"stop"}     {"stopping":true}: when whoever asked hangs up, or has not for 2 s,
//	                       the peer sends itself SIGTERM, and the program ends in the way it
//	                       has for that signal
//
// An answer to anything else is {"error":"..."}.
//
// # Doctor
//
// Doctor tries out what all this needs on a host, and returns findings for people.
package launch
