// Package shm lets the ranks of one host combine vectors in memory that they share,
// without a system call and without a copy through the kernel.
//
// A Segment is that memory, cut into lanes. A communicator owns a lane, and carries out
// one call after the other in it: a rank posts what it is about to do, looks at what the
// others have posted, and then all work at the vector at once, each at a chunk of its
// own. There are three ways:
//
//	Small    the vector travels with the post; every rank folds all of them
//	staged   AllReduce and its relatives over ordinary slices: blocks are copied into
//	         the segment, folded there by the rank whose chunk they are of, copied out.
//	         Results that all are to have go back into the blocks that they came from
//	direct   the vectors themselves lie in Arenas, which the others have mapped: each rank
//	         folds its chunk straight out of all of them into all of them. Of short ones it
//	         folds those as well whose ranks wait for their turn on the same core
//
// Costs for n ranks and S bytes: Small folds (n-1) S bytes at each rank and waits once;
// staged copies 2(n-1)/n S bytes and folds (n-1)/n S; direct reads S bytes, writes as many,
// and waits twice. A rank that is late may still write to the others' vectors of a direct
// call that has failed there: Arena.Abandon takes these out of its reach.
//
// Who waits polls first, then lets other processes run, then sleeps until its Bell is
// rung: with more ranks than cores nobody keeps a core from a rank that has work to do, and
// the other goroutines of a process that waits go on. Ranks that wait spread evenly over the
// cores. A rank that dies leaves the others waiting: whoever notices calls Segment.Revoke,
// which ends every wait of this process. The first to notice is a Vigil: it hears of the
// death of another process from the kernel, before that takes the memory of the dead apart
// and closes what it had open.
//
// Use, at each rank, over memory of Size(n) bytes that all have mapped:
//
//	seg, err := shm.Attach(mem, arenas, n, rank)
//	seg.UseBells(bell, ropes)
//	vigil := seg.KeepVigil(func(rank int) { seg.Revoke() })
//	lane := seg.Lane(0, []int{0, 1, 2})
//	lane.PostVectors(header, src, refs)
//	err = shm.AllReduce(lane, vectors, shm.Everyone)
//
// Memory comes from NewMemory, which makes a file without a name: nothing is left of it
// once the last process that has it is gone, however it ended. Its pages are reserved, so
// that a lack of memory is an error there and no bus error later. Segments work in
// ordinary memory as well, between goroutines; tests use that.
package shm
