// Package launch starts the peers of a job as local processes, and gives each of these processes
// its group of peers.
//
// A training program calls Init and needs nothing else of this package. If elrun starts the
// program, it becomes one of several peers; if a user starts it directly, it is a group of one:
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
//		s, err := g.Sessions().Next(ctx, 0) // a fixed set of members
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
// Peers may come, leave and die while the job runs. A launcher is not a member of the group: it
// starts peers, reports certain deaths to the other peers, describes events to people, and
// restarts crashed peers on request. With Options.Join its peers join a running job: a job of the
// same user on this host, or any job by a ticket.
//
// # Leaving
//
// On SIGTERM a peer finishes the step and leaves: Sessions.Next returns elastic.ErrLeft, and so do
// Group.Err and trainer.Run; the program ends by itself. It has not finished, so it saves no result,
// and may end with any status: the launcher does not count it. A second SIGTERM, at least one second
// later, has its usual effect. Programs that have registered for the signal receive it as well. A
// launcher passes a signal on to its peers. If the job has peers of other launchers, it sends SIGTERM
// in place of SIGINT, so that its peers leave and are not lost.
//
// # Calls of a program
//
// A training program needs [Init], and [Launched] if it prints its result itself. For a program in
// another language a [Sidecar] is the peer ([InitFor]). [Run] with
// [Options] is the launcher; [Find] returns a [Job], which has the calls behind elrun status, scale,
// stop and ticket. [NewProgram], [Serve] and [Program.Main] describe services and tasks beside the
// peers.
package launch

// For readers of the code:
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
//	ELRUN_GRACE      time that this peer gets to end after SIGTERM, as in 10s
//	ELRUN_NODE       name of the node, for services and tasks of a Program only
//	ELRUN_LISTEN     auto (loopback until the job is opened), local (loopback), all (all
//	                 interfaces), or addresses with ports and multiaddrs, separated by commas
//	GOMAXPROCS       max(1, cores / np), unless the launcher's environment has one
//	OMP_NUM_THREADS  the same number, for peers in other languages; unless the launcher's
//	                 environment has one
//
// # Between launcher and peer
//
// The socket carries JSON messages, one a line:
//
//	peer      hello    its ID and addresses; renew when it has a new ID. A second hello with
//	                   another ID comes from a further program of the same command. A sidecar
//	                   adds the process ID of its program
//	launcher  start    to all peers when all have said hello: the members of the first view, in
//	                   the order of ranks, the launcher's public key and the options of the
//	                   group. A later peer gets it at once, with members that it may ask and the
//	                   launcher's signature of its ID, or a ticket
//	          abort    there is no job to join, and why: give up
//	          dead     a member's process has ended: its launcher has the wait status, or the
//	                   kernel has marked the word of its program
//	                   (internal/wire/word.go)
//	          finished the members have finished before this peer was admitted
//	          again    no member lives: a peer that still waits to join says hello again, and
//	                   gets another answer
//	          scaled   the answer to scale
//	          pass     the launcher's signature of a new ID, if the launcher began the job
//	          directory the answer to program, and the locations of services
//	peer      event    an event of the event log
//	          leaving  it got SIGTERM: its exit status does not count
//	          failed   what the program of a sidecar says of its failure, for the line about its end
//	          suspect  a member is silent: if it is a stopped child of the launcher (state T),
//	                   it is killed, which makes the death certain
//	          known    the members, for peers that are started later
//	          program  the graph that this process has built; serving: where its service listens
//	          scale    a request for another number of peers, in the job or on a host
//
// A peer that sees the end of the socket knows that the launcher died: it leaves its group, and
// 1.5 s later it exits with status 1 if the program has not ended. A sidecar exits with status 1 when
// its program ends. Nothing else in this package exits the process. A program that never calls Init gets SIGTERM on Linux when its launcher dies.
//
// # Goroutines
//
// In a launcher the goroutine of Run owns the state of the job (runner). Package internal/job makes the
// decisions about its life, from what this goroutine notices.
// While the job runs, this goroutine never blocks on a peer, a host or an output, so that signals
// always work. The other goroutines pass on their input:
//
//	local.watch      one for each process on this host; below it one for each output stream, a reader
//	                 of the messages of the process, and a writer of messages to it
//	Host.run         one for each other host: reads the messages of the agent; another one writes
//	printer.run      one for each output file, the only one that writes to the file
//	announcer.run    announces the job, and seeker.run looks up members, with Network.Discovery
//
// In a peer the program's own goroutine calls Init, and the methods of the group. Beside it run:
//
//	Link             one goroutine reads from the launcher, one writes to it
//	control          one accepts connections, and each connection has one
//	identity         one for each proof to a member, and for discovery
//	signals          one waits for the first SIGTERM
//
// # Where to read
//
// Each room has one responsibility, and its package comment names the processes that it runs in:
//
//	spec               what users ask for and get: options, hosts, tickets, results
//	internal/wire      the messages between launcher, peers, agents and commands
//	internal/run       the launcher: its loop (internal/run/runner.go), what it notices
//	                   (internal/run/events.go), what it does (internal/run/supervisor.go)
//	internal/job       every decision about the life of a job, as a pure machine
//	internal/say       the lines for people
//	internal/proc      the processes of this host
//	internal/hosts     the connections to other hosts, and which peers run where
//	internal/agent     the process on another host that obeys the launcher
//	internal/inpeer    the process of a peer: Init, the link to its launcher, joining, tickets
//	internal/ctl       control sockets: status, stop, scale, and their answers
//	internal/doctor    the tests of hosts and jobs
//	program            graphs of services and tasks; internal/nodes decides when they start and
//	                   stop, internal/rpc carries their calls
//
// # Programs
//
// A Program is a graph of peers, services and tasks; docs/programs.md has a complete example. Its
// peers are the peers of a job. The first of them describes the program to the launcher (message
// program). The launcher starts the other nodes, with the node's name in ELRUN_NODE. Services
// report where they listen (serving), and the launcher passes the locations to all processes
// (directory). Package internal/nodes decides when nodes start and stop. Calls do not pass through the
// launcher: see package launch/internal/rpc.
//
// # Other hosts
//
// With Remote.Hosts the peers run on other hosts. For each host Run starts ssh, which starts an
// agent there (ServeHost, elrun agent), and the agent starts the peers. Launcher and agent exchange
// messages over the standard input and output of the agent: JSON objects, one a line
// (internal/wire).
// They are the messages between launcher and peers, and those about the peers' output, signals, and the
// ends of processes. The end of its input tells an agent that the launcher has died. The end of a
// connection is no proof that the peers behind it have ended, so the launcher does not report their
// deaths as certain. For each remote peer the launcher opens a control socket on its own host, and
// forwards the requests to the control socket of the peer.
//
// # Joining by ticket
//
// A ticket names the job and some addresses of members, and carries a key with which the members
// have agreed to admit newcomers (internal/inpeer/issue.go, transport/ticket). A newcomer finds the members that
// listen at the addresses, and proves to these members that it has the key
// (internal/inpeer/search.go). It gives
// the same proof to every other member before it sends the first message to that member
// (internal/inpeer/identity.go). Members look up the key in their view
// (internal/inpeer/admission.go). With Network.LAN, newcomers
// also find members on the local network by multicast DNS: the peers that made a ticket for other
// hosts, and the peers that joined by a ticket. So the ticket stays usable after the members that
// it names have died.
//
// A job whose launcher has no listen addresses listens on loopback until the first ticket for
// other hosts opens it (internal/inpeer/open.go).
//
// # Control socket
//
// Every peer answers questions about its job on a private Unix socket. The socket is a file in
// $XDG_RUNTIME_DIR/elrun, or else in the directory elrun-UID of the temporary directory. The
// directory must belong to the user, and other users must have no access to it. Both sides check
// the user of the other side. The next process that lists the sockets removes the files of killed
// peers. A peer that cannot open its socket reports this and goes on. A request is one JSON object
// on a line, and so is the answer. Find and Jobs list the sockets, and the methods of a Job send
// requests to them:
//
//	{"request":"status"}     {"status":{...}}: the job as this peer sees it
//	{"request":"stop"}       {"stopping":true}: when the client hangs up, or after 2 s, the peer
//	                         sends itself SIGTERM, and the program ends as it does on that
//	                         signal
//	{"request":"scale",      {"scaling":"..."}: the launcher's action
//	 "peers":3}              "host":"a" for the peers on that host
//	{"request":"ticket",     {"ticket":{...}}; with "local":true the job is not opened to other
//	 "valid_ms":3600000}     hosts
//	{"request":"checkpoint"} {"saved":{"since":3,...}}: after a second at most, with the file once
//	                         it is written; until then ask again, with "since":3
//
// The answer to any other request is {"error":"..."}.
//
// # Doctor
//
// Doctor tests everything that jobs need on a host, and returns findings for people.
