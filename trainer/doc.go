// Package trainer trains a model on all peers of a group at once (synchronous data parallelism).
// Each peer computes its share of every batch, and after every step all peers have bit-identical
// parameters. Peers may join, leave and die at any time. The survivors compute all microbatches of
// a dead peer's share of the open step, and keep the microbatches that they have computed.
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
// # Calls of a program
//
// A program needs [Run] with a [Model] and a [Config]. [CheckModel] tests a model. [New] with
// [Training.Points] is Run for programs that score or stop between steps. Run returns nil if and
// only if all steps are committed, and elastic.ErrLeft if this peer was asked to leave before.
//
// # Memory
//
// The table shows the bytes that a peer holds for each parameter, the parameter included, by
// optimizer. Within a host, the bytes of the last column lie in memory that the peers of the host
// share, from which reductions do not copy. Between hosts they are private.
//
//	mode                                SGD  momentum  Adam  shared
//	plain                                16        20    24      12
//	plain, Model.Waits or Gradients.Delay   20        28    36      12
//	Exact                                20        24    28       8
//	Compression, each coding             24        28    32       0
//	local steps, plain                   28        32    36      12
//
// The plain mode has the parameter, the own sum, the sum of all ranks, and the mean gradient of the
// last step. Momentum adds one vector, Adam (and AdamW) two. With Model.Waits or Gradients.Delay the
// next step begins early, so the parameter and the optimizer state are kept twice. Exact mode has
// two integer sums besides the mean gradients of two steps, and with Growth the gradient of a
// microbatch. Compression adds two vectors of coding
// errors. Local steps (package trainer/local) add the start of a path, a gradient, the sum of the
// displacements, and 4 bytes for each vector of the inner optimizer; the columns are the optimizers
// of the outer step.
package trainer

// For readers of the code:
//
// # A step
//
// A step consists of microbatches. The files follow its stages:
//
//  1. job.go: package elastic provides a session, that is a fixed set of members. Members that
//     were behind have been brought up to date by then, by the methods in state.go.
//  2. resumereport.go: all ranks gather which microbatches each of them holds of the open step. The
//     assignment is a pure function of these reports: held microbatches stay with their holder, and
//     the other microbatches are assigned by speed (balance.go). Later steps of a session need no
//     gather: no rank holds a microbatch of the new step, and the previous commit record has the
//     speed of every rank. The samples of a microbatch follow from the seed and the number of the
//     step (plan.go).
//  3. contribution.go, accumulator.go: the model adds the gradient sums of its microbatches to the
//     contribution. No reduction writes to a contribution. Between hosts, one call of the model
//     computes several microbatches, if the model supports that (calls.go).
//  4. buckets.go, reducer.go: while the last backward pass still runs, complete buckets of parameters are
//     reduced into a second buffer, in the order in which the model completes them.
//  5. rankreport.go, openstep.go: when every bucket is reduced, and only then, a small vector with a
//     report per rank is reduced: the commit record. A complete commit record is the commit of the
//     step. The mean gradient is the sum divided by the number of samples in the commit record,
//     or by the sum of the weights that the models have given (Batch.Weight).
//     Between hosts the next step begins meanwhile, if the model waits for parameters (undolog.go):
//     parameters are updated as their sums arrive. The first call of the next step waits for each
//     parameter that it reads, and computes up to its first gradient. Then the open step is finished
//     before that gradient is added.
//  6. state.go: the mean gradient is applied. It is kept until the next commit, for members that
//     missed this commit.
//  7. report.go: in the next commit record all ranks declare the step committed, which makes the
//     step stable. Only stable steps are reported and saved (saver.go).
//
// # Invariants
//
// A microbatch is in a contribution as a whole or not at all. A run checks for the end of the
// session between two calls of the model, and keeps the contribution for the next session. A
// contribution is dropped in six cases: its step is committed; the state is replaced; the peer has
// a new identity (then others have computed its part); all ranks have to compute the step again; it
// overlaps with the contribution of another rank; the model has run out of memory, perhaps in the
// middle of a microbatch.
//
// If any rank has seen a complete commit record, the contributions of all ranks are in the sums. So
// the last committed steps of two members differ by at most one. A member that is behind commits
// the same step with the same bytes. The contribution of this member is in the step as well, so the
// member reports it.
//
// Three decisions are read from the commit record, which is equal at every rank: whether to leave
// a session for a later view, whether a step has to be computed again, and which ranks have to be
// re-synced. No rank decides any of these from local knowledge.
//
// The outcome of each step lists the contribution of every rank. States and updates contain the
// outcome, so that members can report the contribution of a dead peer (event.Step.OfLost).
//
// No peer leaves before a further commit record has confirmed that all peers have committed the last
// step. A failure of the group after that is no error: a peer without a further session evaluates
// alone.
//
// # The parts of a run
//
// A job (job.go) goes from session to session. It agrees with the other peers at the
// entry of a session, in commit records, and at the end. It owns the state (state.go), which is the
// same at all members after the same committed step; package elastic copies it between peers.
// The job also owns the open step (openstep.go), which is this peer's work on the next step: the
// contribution (contribution.go), the shares of all ranks (balance.go), and the reduction of
// gradients (reducer.go). A try (openstep.go) ends with its session. A reporter (report.go) announces
// stable steps. State and open step do not depend on a group.
//
// # The ledger
//
// The event log accounts for every sample. Each microbatch of each stable step appears in the entry
// of one (peer, step), written by that peer, or by others if the peer is gone. If a peer dies after
// the last step, no later step reports its part. So the part of each peer in the last step is also
// written by the peer of the previous rank. Microbatches that a peer computed a second time are
// counted as recomputed. A death leaves that count at 0: only a peer that was put out or ran out of
// memory discards computed microbatches.
//
// # Shares
//
// A policy of package loadbal decides how many microbatches each rank computes. All ranks run equal
// policies: at the entry of a session the policy starts from the speeds that all ranks reported,
// and after each commit it gets the times of all ranks from the commit record. The global batch
// does not change and sums over samples need no weights, so the gradient equals the gradient of
// equal shares. A time is used only if the whole share was computed in one session. If a model runs
// out of memory (ErrOutOfMemory), its peer halves the number of microbatches per call. If a call
// has only one microbatch, the peer bounds its share at half. Then the peer ends the session for
// all; at the entry of the next session all ranks learn the bound.
//
// Before a peer joins it computes a few microbatches as a trial, whose results are discarded
// (trial.go). A member predicts the step time with and without the candidate, from the candidate's
// speed and the measured parts of a step (admit.go). It admits the candidate if steps get shorter.
// Otherwise the candidate is parked: it follows the job, and asks again later. An admitted candidate
// starts with a share that suits its speed.
//
// The commit record also carries the gradient norm of every rank, from which
// trainer/internal/growth estimates the largest useful batch. With Config.Growth the batch grows by
// this estimate: the list of its changes is part of the state, and the plan walks through it.
//
// # Data
//
// The model reads its samples itself. Shares and sample order are known when a step begins, so
// Model.Prefetch is called with the samples of this step and of the next step (prefetch.go). It runs
// in its own goroutine, and no step waits for it.
//
// # Compression
//
// With Gradients.Compression, buckets are sent in a lossy coding (package compress). Each peer keeps
// the coding error for the next step: error feedback (compressed.go). All peers still have
// bit-identical parameters. The kept error changes only with the commit of a step, and is lost with
// its peer.
//
// # Delay
//
// With Gradients.Delay the commit of a step applies the mean gradient of the previous step (a
// staleness of one). All members keep this gradient in any case, for members that missed the
// previous commit (state.go). So a step can be computed before the sums of the previous step have
// arrived (openstep.go). The state is the parameters and the outstanding gradient, which is applied
// at the end of the job (job.go). A share is decided one step earlier than otherwise, from the
// commit record before the last (balance.go).
//
// # Decisions
//
// Between two steps nothing is in flight. A Training has points there, at which programs score
// the model together, keep a copy of the model, or stop. All peers come to the same decision
// (decisions.go).
//
// # Goroutines
//
// The goroutine of Run, or of the loop over Points, computes all gradients and changes all states.
// Three things run beside it:
//
//	exchange    the collective calls of a step, if the next step begins early (try.awaitReports); it ends
//	            before the step is committed
//	saver       the write of a checkpoint, from a copy of the state; at most one at a time
//	prefetcher  reads the samples of the next calls
//
// # Exact mode
//
// Each microbatch is computed as if it were alone and converted to integers (package exact), so
// sums do not depend on the assignment of microbatches. If the gradients of a step do not fit the
// scale, all ranks compute the step again, as another attempt with a scale made from the step's
// own gradients. The commit record is equal at every rank, so all begin the attempt together.
// Ranks that missed the commit record learn of the attempt at the entry of the next session, where
// the highest attempt counts.
//
// # How to change it
//
// A new mode of summation is an accumulator (accumulator.go); a new setting that all peers must
// share goes into Config.agreed (config.go); new data for all ranks goes into rankReport
// (rankreport.go), if needed in every step, or into resumeReport, if needed once per session.
// Decisions must be pure functions of gathered or reduced data.
