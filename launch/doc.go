// Package launch starts the peers of a job as local processes, and is what each of
// these processes uses to join the others.
//
// A training program calls Init and needs nothing else of this package. Started by
// elrun it becomes one peer among several; started alone it is a group of one:
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//		"log"
//
//		"github.com/elrun/elrun/collective"
//		"github.com/elrun/elrun/launch"
//	)
//
//	func main() {
//		ctx := context.Background()
//		g, err := launch.Init(ctx)
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer g.Close()
//		s, err := g.Next(ctx, 0) // a fixed set of members
//		if err != nil {
//			log.Fatal(err)
//		}
//		sum := []int64{int64(s.Rank)}
//		if err := collective.AllReduce(ctx, s.Comm, sum, sum, collective.Sum[int64]); err != nil {
//			log.Fatal(err)
//		}
//		fmt.Println(s.Comm.Size(), "peers, sum of the ranks", sum[0])
//	}
//
// Run is the other side, the launcher:
//
//	res, err := launch.Run(ctx, launch.Options{Program: "./train", Peers: 4})
//
// Peers may come, go and die while the job runs. A launcher is no part of the group: it
// starts peers, tells the others when one has ended for certain, words what happens for
// people, and starts crashed peers again if it is told to. With Options.Join its peers join
// a job that runs already, of the same user on this host or by a ticket from anywhere.
//
// # Leaving
//
// SIGTERM at a peer lets it finish the step and leave: Group.Next returns
// elastic.ErrLeft, and the program ends by itself. A second one, a second later or
// more, has its usual effect. Programs that ask for the signal themselves get it, too. A
// launcher that gets a signal passes it on to its peers; where the job has peers of
// other launchers it sends them SIGTERM in place of SIGINT, so that the others lose nobody.
//
// # Environment
//
// The launcher sets all of these, Init reads them:
//
//	ELRUN_JOB        name of the job: letters, digits, '.', '_' and '-', at most 40
//	ELRUN_INDEX      local index of this peer, 0 <= index < np
//	ELRUN_NP         number of peers that the launcher started
//	ELRUN_FD         number of an open stream socket to the launcher
//	ELRUN_TRANSPORT  auto, shm, unix, direct or p2p
//	ELRUN_ENCRYPT    auto, always or never
//	ELRUN_RELAY      never or members
//	ELRUN_NODE       of a service or task of a Program alone: the node's name
//	ELRUN_LISTEN     auto (loopback until the job is opened), local (loopback), all (all
//	                 interfaces), or addresses with ports and multiaddrs, separated by commas
//	GOMAXPROCS       max(1, cores / np), unless the launcher's environment has one
//
// # Between launcher and peer
//
// Over the socket go JSON messages, one a line:
//
//	peer      hello    its ID and addresses; renew when it has a new ID. A second hello is that
//	                   of a further program of the same command
//	launcher  start    to all when all have said hello: the members of the first view, in the
//	                   order of their ranks, the launcher's public key and the options of the group.
//	                   To a peer that comes later at once, with members that it may ask and the
//	                   launcher's signature under its ID, or a ticket
//	          abort    a program ended before it said hello while others wait for it: give up
//	          dead     a member's process has ended; its launcher has the wait status
//	          finished the members have finished before this peer was let in; a second start
//	                   says that none lives, and who forms the first view anew
//	          scaled   the answer to scale
//	          pass     the launcher's signature under a new ID, if it began the job
//	          directory the answer to program, and where services are now
//	peer      event    of the event log
//	          suspect  a member is silent: if it is a child of the launcher that is stopped
//	                   (state T), the launcher kills it, and so makes the death certain
//	          known    the members, for peers that are started later
//	          program  the graph that this process has built; serving: where its service listens
//	          scale    somebody wants another number of peers, in all or on a host
//
// A peer that sees the socket end knows that the launcher died: it leaves its group, and
// 1.5 s later it exits with status 1 if the program has not ended. That exit is the only one
// in this package. A program that never calls Init gets SIGTERM on Linux when its
// launcher dies.
//
// # Programs
//
// A Program is a graph of peers, services and tasks; docs/programs.md has a whole one. Its peers are
// those of a job. The first of them describes the program to the launcher (message program), which
// starts the other nodes with ELRUN_NODE, the name of the node, tells all processes where services
// are (directory) when these say where they listen (serving), and starts and stops them by
// nodeplan.go. Calls do not pass the launcher: package internal/rpc.
//
// # Other hosts
//
// With Options.Hosts the peers run elsewhere. For each host Run starts ssh, which starts an
// agent there (ServeHost, elrun agent), and the agent starts the peers. Launcher and agent
// exchange frames over the standard input and output of the agent, JSON objects, one a line
// (frame.go): what launcher and peers say to each other, the peers' output, signals, and how a
// peer's process ended. The end of its input tells an agent that the launcher has died. The
// end of a connection is not the end of a peer: nobody is told that its death is certain.
// For each peer elsewhere the launcher opens a control socket here, whose requests go to that
// of the peer.
//
// # Joining by ticket
//
// A ticket names the job and some addresses of members, and carries a key, which members have
// agreed to let newcomers in by (issue.go, transport/ticket). A newcomer asks who listens at the
// addresses and shows a claim of the key to those who answer (search.go), and to each other
// member before it sends the first message there (identity.go). Members look the key up in
// their view (door.go). With Options.LAN the peer that
// made a ticket for others than this host and those that join by one can be found on the
// local network (multicast DNS): the ticket stays good when the members that it names have
// died.
//
// A job whose launcher was given no addresses listens on loopback until the first ticket
// for others opens it (open.go).
//
// # Control socket
//
// Every peer answers questions about its job on a private Unix socket: a file in
// $XDG_RUNTIME_DIR/elrun, or else in the directory elrun-UID of the temporary directory, which
// must belong to the user and let in nobody else; both sides check the other's user. Files of
// killed peers are removed by whoever looks next. A peer that cannot open its socket says so
// and goes on. A request is one JSON object on a line; the answer is
// one JSON object. Find and Jobs look for the sockets, and the methods of a Job ask on them:
//
//	{"request":"status"}     {"status":{...}}: the job as this peer sees it
//	{"request":"stop"}       {"stopping":true}: when whoever asked hangs up, or has not for 2 s,
//	                         the peer sends itself SIGTERM, and the program ends in the way
//	                         it has for that signal
//	{"request":"scale",      {"scaling":"..."}: what the launcher does
//	 "peers":3}              "host":"a" for the peers on that host
//	{"request":"ticket",     {"ticket":{...}}; with "local":true the job is not opened to other
//	 "valid_ms":3600000}     hosts
//
// An answer to anything else is {"error":"..."}.
//
// # Doctor
//
// Doctor tries out what all this needs on a host, and returns findings for people.
package launch
