// Package remote trains a model that another process computes, such as a Python program: the program
// starts a sidecar, which is the peer of the job, and both share memory and a connection.
//
//	err := remote.Serve(ctx, conn, memory, remote.Peer{Open: open, Ending: sidecar.Close})
//
// The program describes its model in the first frame: where the parameters and the gradients are in
// the memory. Then it computes what each frame asks for. The sidecar runs package trainer with a
// model whose Gradient and Updater send a frame and wait for the answer. So shares by speed, kept
// contributions, exact mode, digests and checkpoints are those of package trainer.
//
//	sidecar                                       program
//	AHEAD samples of the future  ->               if it wants to know them
//	WORK samples                 ->               adds the gradients of the samples to the memory
//	                             <-               DONE loss, and the weight of the samples
//	APPLY mean is in the memory  ->               updates the parameters
//	                             <-               APPLIED
//	SAVE                         ->               state besides the parameters, for a newcomer
//	                             <-               BLOB
//	LOAD state                   ->
//	                             <-               LOADED
//	POINT all samples are read   ->               evaluates
//	                             <-               PART, SUM; the answers have the same kinds
//	                             <-               GOON
//	END result or error          ->
//
// The program may send LEAVE or FAIL at any time. docs/internals/remote.md describes the frames.
package remote
