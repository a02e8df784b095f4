// Package job is the life of a job as its launcher sees it: a pure state machine without I/O, clock,
// goroutine, randomness, or text for people. The launcher's loop drives it:
//
//	j, outs := job.New(job.Config{Peers: 4, Grace: 10 * time.Second, StartTimeout: 10 * time.Minute})
//	for {
//		carryOut(outs) // in order; job.Over is the last one
//		outs = j.Step(<-inputs)
//	}
//
// # Inputs record facts, one function decides
//
// An input only records a fact about a process or about the job. After each input the function
// decide looks at all facts and makes every decision that is due. So no decision depends on which
// input happened to come last, and a hello cannot be forgotten by the handler of another input.
//
//	Forming ---all said hello, or patience is over---> Running ---a member has the result---> Finished
//	   |  ^                                              |  |                                    |
//	   |  '--no member lives, for certain: begin anew----'  '--a mistake of the program--.       |
//	   '--a program failed by itself, no restart left------------------------------> Failed      |
//	   ^                                                                                         |
//	   '--a further program waits, and no member of the last one lives---------------------------'
//
// In every phase but Forming each hello is answered in the Step in which it comes. Forming is bounded
// by Config.StartTimeout as soon as one process waits.
//
// # Words
//
// A process is an incarnation of a seat: the seat stays, a restart puts another process into it. A
// command may run several programs one after the other, for example a shell script; each of them says
// hello. A generation is a first view and all that follows from it. It ends if all its members have
// died, or if it has a result and the next program of the command begins. Facts of a generation do
// not count in the next one.
//
// How a process has ended (End) follows from the facts about it, in the order of their certainty,
// whatever the order of the reports. A job has finished if a member of the present generation has
// reported its result, and not because a process ended with status 0.
package job
