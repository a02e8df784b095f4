// Package shm runs the collective calls of the ranks of one host in memory that they share,
// without a system call per message and without a copy through the kernel.
//
// # Mechanism
//
// A Segment is the shared memory, divided into lanes. A communicator owns a lane and runs one
// call after the other in it: each rank posts a description of its call, compares it with the
// descriptions of the others, and then all ranks work at the vector at once, each at its own
// chunk. There are three engines:
//
//	inline   a short vector travels with the description; every rank reduces all of them
//	staged   vectors in ordinary memory: ranks copy blocks into the segment, each rank reduces
//	         its chunk there, and all copy the results out. A result that all ranks want overwrites
//	         the block of its operands
//	direct   vectors in an Arena, which the other ranks have mapped: each rank reduces its chunk
//	         out of all source vectors into all destination vectors. If ranks share cores, a rank
//	         also takes short chunks of other ranks (work stealing)
//
// For n ranks and S bytes the inline engine reduces (n-1) S bytes at each rank and waits once;
// the staged engine copies 2(n-1)/n S bytes and reduces (n-1)/n S; the direct engine reads S
// bytes, writes S bytes, and waits twice.
//
// A waiting rank first polls (busy-poll), then yields its core to other processes, then sleeps
// until an Event (an eventfd) wakes its goroutine. So with more ranks than cores no rank keeps a
// core from a rank that has work, and the other goroutines of a waiting process run on. Waiting
// ranks spread evenly over the cores.
//
// # Failures
//
// When a rank dies the other ranks would wait for ever. A process that detects the death calls
// Segment.Revoke, which ends every wait of the calling process. A DeathWatch is the fastest
// detector: the kernel reports the death of another process through robust futexes, before it frees
// the memory of the process and closes its files.
//
// A rank that was put out of the group in the middle of a direct call may run on and still write to
// the vectors of the others. Arena.Abandon removes these vectors from the memory that such a rank
// can reach.
//
// # Use
//
// Each rank attaches to Size(n) bytes that all ranks have mapped:
//
//	machine := shm.ReadMachine() // once per process
//	seg, err := machine.Attach(mem, arenas, n, rank)
//	seg.UseEvents(event, wakers)
//	watch := seg.WatchDeaths(func(rank int) { seg.Revoke() })
//	lane := seg.Lane(0, []int{0, 1, 2})
//	lane.PostVectors(header, src, offsets)
//	err = shm.AllReduce(lane, vectors, shm.Everyone)
//
// NewMemory returns memory in a file without a name (memfd). The kernel frees this memory at the
// end of the last process that has it mapped, even if that process is killed. The pages are
// reserved, so that a lack of memory is an error of NewMemory and not a later bus error. Segments
// also work in ordinary memory between goroutines; tests use this.
package shm
