// Package trainer trains a model on all peers of a group at once, each on its
// share of every batch, with one result: after every step all peers have the same
// parameters to the bit. Peers may come, go and die at any time; what a dead peer had
// not finished is computed by the others, and nothing else is computed twice.
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//		"log"
//
//		"github.com/elrun/elrun/launch"
//		"github.com/elrun/elrun/trainer"
//		"github.com/elrun/elrun/trainer/optim"
//	)
//
//	// main finds the line y = 1 + 2 x through a hundred points.
//	func main() {
//		ctx := context.Background()
//		group, err := launch.Init(ctx)
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer group.Close()
//		w := make([]float32, 2)
//		model := trainer.Model{
//			Params: []trainer.Param{{Name: "w", Shape: []int{2}, Data: w}},
//			Gradient: func(b *trainer.Batch) (loss float64, err error) {
//				grad := b.Grad(0)
//				for _, i := range b.Samples() {
//					x := float32(i) / 100
//					miss := w[0] + w[1]*x - (1 + 2*x)
//					grad[0] += 2 * miss
//					grad[1] += 2 * miss * x
//					loss += float64(miss * miss)
//				}
//				return loss, nil
//			},
//		}
//		if err := trainer.Run(ctx, group, model, trainer.Config{
//			Samples: 100, GlobalBatch: 20, Passes: 40,
//			Optimizer: optim.SGD{}, Schedule: optim.Constant(0.3),
//		}); err != nil {
//			log.Fatal(err)
//		}
//		fmt.Printf("y = %.1f + %.1f x\n", w[0], w[1])
//	}
//
// # A step
//
// A step is cut into microbatches. The files follow its stages:
//
//  1. session.go: elastic gives a session, a fixed set of members. Before that it has brought
//     those up that were behind, by the methods in state.go.
//  2. resumereport.go: all gather what each holds of the open step. From that alone follows what
//     each is to compute: held microbatches stay with their holder, the rest follows the
//     speeds (balance.go). The steps after the first in a session need no gather, as
//     nobody holds anything, and the commit record before has told how fast everybody was.
//     plan.go, sample.go: which samples a microbatch has follows from the seed and the
//     number of the step.
//  3. contribution.go, accumulator.go: the model adds the gradient sums of the microbatches to
//     the contribution, which no reduction writes to; between hosts those of several at
//     once, if it can (calls.go).
//  4. buckets.go: while the last backward pass still runs, finished groups of parameters
//     are reduced into a second buffer, in the order in which the model completes them.
//  5. rankreport.go, openstep.go: last and only when every bucket is in, a small vector with a report
//     per rank. That it is complete is the commit of the step. The mean is the sum over
//     the samples counted in the commit record. Between hosts the next step begins meanwhile, if
//     the model waits for parameters (pipeline.go): these are updated as their sums come in,
//     and the next step's first call follows them, up to its first gradient, for which the
//     step is finished.
//  6. state.go: the mean gradient is applied. It is kept until the next commit for those
//     who did not hear of this one.
//  7. report.go: the next commit record, in which all declare the step committed, makes it
//     stable. Only stable steps are reported and saved (saver.go).
//
// # Rules
//
// A microbatch is in a contribution as a whole or not at all. A session that ends is
// noticed between two calls of the model, and the contribution goes on to the next session. It
// is dropped when its step is committed, when the state is replaced, when the peer has
// got another identity (then others have computed its part), and when the step has to be
// computed again by all.
//
// If any rank has seen a complete commit record, all contributions are in. So committed steps differ
// by one at most, and whoever is behind commits the same step with the same bytes. What
// it had contributed has counted, and it reports that.
//
// Whether to leave a session for a later view, whether a step has to be computed again,
// and who has to be re-synced is read from the commit record, which is the same at every rank. No
// rank decides such a thing from what it alone knows.
//
// Each step's outcome tells who contributed what. It travels with states and updates, so
// that members can report the part of one that is gone (event.Step.OfLost).
//
// After the last step nobody goes before a commit record has told that all have committed it. What
// happens to the group afterwards is no error: a peer that gets no further session
// evaluates alone.
//
// # The parts of a run
//
// A job (job.go, session.go) goes from session to session, and agrees with the others: at the entry,
// in commit records, and at the end. It has the state (state.go), which is what all hold alike after the
// committed step, and which elastic copies from peer to peer; and the open step (openstep.go),
// which is what this peer does for the step after: its contribution (contribution.go), the shares of
// all (balance.go), and the reduction of gradients (reducer.go). A try (try.go) ends with its
// session. What is stable is told by a reporter (report.go). State and open step know no group.
//
// # The ledger
//
// The event log accounts for every sample: each microbatch of each stable step is in the
// entry of one (peer, step), written by that peer, or by others where it is gone. The part of
// the last step, of which no later entry tells, is also written by the peer before it in the ranks.
// Microbatches that a peer computed a second time are counted as recomputed. That is 0
// through every death: only a peer that was put out or ran out of memory throws away
// what it has computed.
//
// # Shares
//
// A policy of package loadbal decides how many microbatches each rank computes. All
// ranks hold equal ones: at the entry of a session it is begun with the speeds that all
// have told, and after each commit it is given the times of all, from the commit record. The batch
// stays what it is, and sums over samples need no weights, so the gradient is that of equal
// shares. A time counts only if the whole share was computed in one go. A peer whose model
// runs out of memory (ErrOutOfMemory) gives it half as much at once, or halves its bound if
// that was a microbatch, and ends the session for all; the next entry tells the bound.
//
// Before a peer joins it computes a few microbatches for nothing (trial.go). From its speed
// and from what steps take, a member predicts them with it and without (admit.go), and
// lets it in if they get shorter. Otherwise it is parked: it follows the job, and asks
// again. When it is let in its first share is one that suits it.
//
// The commit record also carries the norm of every rank's gradient, from which noise.go estimates
// how large a batch is of use.
//
// # Data
//
// The model reads its samples itself. As shares and the order of samples are known when a
// step begins, Model.Prefetch is told what the model will be given in this step and the
// next (prefetch.go), by a goroutine that no step waits for.
//
// # Compression
//
// Where Config.Compression says so, buckets travel in a lossy coding (package compress), and
// each peer keeps what its codes lacked for the next step (compressed.go). All have the same
// bits all the same. What is kept changes with the commit of a step, and not before; it goes
// with its peer.
//
// # Memory
//
// What a peer holds for each parameter, in bytes, the parameter included, by optimizer. Within a
// host the bytes of the last column are in memory that its peers share, from which reductions do
// not copy; between hosts they are the peer's own.
//
//	mode                                SGD  momentum  Adam  shared
//	plain                                16        20    24      12
//	plain, Model.Waits or Config.Delay   20        28    36      12
//	Exact                                20        24    28       8
//	Compression, each coding             24        28    32       0
//	local steps, plain                   28        32    36      12
//
// Plain are parameter, own sum, sum of all, and mean gradient of the last step. Momentum has a
// vector, Adam (and AdamW) two. Where the next step begins early, parameter and optimizer's
// memory are kept twice. Exact mode has two sums of integers besides the mean gradients of two
// steps. Compression has what codes lacked, twice. Local steps (package trainer/local) have the
// beginning of a path, a gradient, and how far paths came, and 4 bytes more for each vector of the
// inner optimizer; the column is that of the outer one.
//
// # Delay
//
// With Config.Delay the commit of a step applies the mean gradient of the step before it, which
// all keep anyway for those who did not hear of that commit (state.go). So a step can be computed
// before the sums of the one ahead of it are there (forward.go). The state is the parameters and
// what is outstanding; in the end that is applied, too (job.go). A share is decided a step earlier
// than otherwise, from the commit record before the last (balance.go).
//
// # Decisions
//
// Between two steps nothing is in flight. A Training has points there, at which programs score the
// model together, keep a copy of it or stop, and all come to the same end (decisions.go).
//
// # Exact mode
//
// Each microbatch is computed as if it were alone and turned into integers (package exact), so
// sums do not depend on who computed what. A step whose gradients do not fit the scale is
// computed again by all, as another attempt with a scale made from its own gradients.
// The commit record is the same at every rank, so all begin the attempt together; those who did
// not hear of it learn it at the next entry, where the highest attempt counts.
package trainer
