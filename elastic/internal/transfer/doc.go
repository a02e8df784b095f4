// Package transfer brings the state of a training job to a newcomer while training continues. The
// newcomer copies a snapshot from several donors at once, and then applies the updates of the steps
// that were committed during the copy. The package contains no network code: a newcomer (joiner)
// sends requests through a Source, and a member answers by Donor.Serve.
//
// A member reports each step to its Donor, and gives the Donor the snapshots and updates that
// newcomers wait for:
//
//	if donor.Wanted(step) {
//		err = donor.Snapshot(step, state.Save)
//	}
//	if donor.Logging() {
//		err = donor.Update(step, state.Update)
//	}
//
// A newcomer copies a snapshot, loads it, and then applies updates until it is admitted:
//
//	snap, err := transfer.Fetch(ctx, source, options)
//	err = transfer.Keep(ctx, source, options, snap.Step, func() error {
//		return state.Load(snap.Reader())
//	})
//	err = transfer.Follow(untilLetIn, source, options, transfer.Following{
//		After: snap.Step,
//		Apply: func(step int64, update []byte) error { ... },
//		Level: func(at int64, level bool) { ... }, // now ask for admission
//	})
//
// # Protocol
//
// All members that have committed the same step hold the same bytes, so the step identifies a
// snapshot. A request is a line of JSON. The answer is a line of JSON (the header), followed by raw
// bytes, whose number the header determines.
//
//	joiner                                 every donor
//	   | where                                |
//	   |------------------------------------->|
//	   |<-------------------------------------| committed step, snapshots held
//	   | take S, a little ahead of all        |
//	   |------------------------------------->|
//	   |<-------------------------------------| pending; or past: once more, at twice the distance
//	   | manifest S                           |
//	   |------------------------------------->|   ... step S is committed: Snapshot
//	   |<-------------------------------------| size, hash of each chunk      Update(S+1)
//	   | chunks S, first, count               |                               Update(S+2)
//	   |------------------------------------->|                                  ...
//	   |<=====================================| other ranges from each donor
//	   | keep S: done with the snapshot       |
//	   |------------------------------------->|   memory of the snapshot is free
//	   | updates after S              one donor, the next when it dies
//	   |------------------------------------->|
//	   |<=====================================| Update(S+1), Update(S+2), ...
//	   | updates after S+k                    |
//	   |------------------------------------->|   waits for the next one: level
//
// Each chunk is verified when it arrives, by its BLAKE3 hash in the manifest. The majority's
// manifest counts, and no chunk is fetched before the majority is known. A donor with another
// manifest is named in the result (Odd) and not used. A donor that sends a chunk with another hash
// is named, too (Forged). So as long as most donors are honest the others cannot forge a state. If
// two manifests are equally common the manifest of the donor that was chosen first counts, as
// nothing shows which manifest is honest.
//
// If a donor fails, only the chunks that it has not sent are requested again. When all chunks are
// requested, idle donors steal chunks from slow ones (work stealing), so that the slowest donor
// does not determine the time of the copy.
//
// An update comes from one donor and has an xxHash64, which detects errors of memory and links, but
// not a forgery. The caller decides which peers may be donors (Options.Donors).
//
// A donor keeps a snapshot and the updates after it for a newcomer under a lease, which each
// request of the newcomer renews. If the updates take too many bytes the oldest updates are
// dropped. The memory for a newcomer that died is freed when its lease expires.
//
// A newcomer may use a recent snapshot that was made for another newcomer. While the state does not
// change, as between two sessions, a donor provides a snapshot of the present step (Donor.Rest). So
// a newcomer that cannot catch up while the job trains can catch up in a pause of the job.
//
// # Costs
//
// For a state of S bytes, D donors with link rate B each, and updates of U bytes:
//
//	donor, each step       2 atomic operations
//	donor, step of a copy  one copy of S by the goroutine of the steps; hashing and
//	                       sending are in others
//	donor, steps after it  one copy of U each, while there is a lease
//	donor, memory          S per snapshot, at most Config.Snapshots; Config.LogBytes, by
//	                       default 32 S, but from 16 MiB to 256 MiB, however many join
//	joiner, snapshot       2 or more round trips + a few steps + S/(D B)
//	joiner, memory         S + 3 U
//	joiner, level          if a step takes longer than U/B, and than applying an update;
//	                       else ErrNeverLevel with both rates
package transfer
