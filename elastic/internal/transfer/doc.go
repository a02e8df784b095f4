// Package transfer brings the state of a training job to a peer that joins while
// training goes on: a snapshot, copied from several donors at once, and then the
// updates that were committed meanwhile. It knows no network: a joiner asks through a
// Source, and a member answers by Donor.Serve.
//
// A member tells its Donor of each step, and gives what joiners wait for:
//
//	if donor.Wanted(step) {
//		err = donor.Snapshot(step, state.Save)
//	}
//	if donor.Logging() {
//		err = donor.Update(step, state.Update)
//	}
//
// A joiner copies, loads, and follows until it is let in:
//
//	snap, err := transfer.Fetch(ctx, source, options)
//	err = transfer.Keep(ctx, source, options, snap.Step, func() error {
//		return state.Load(snap.Reader())
//	})
//	err = transfer.Follow(untilLetIn, source, options, transfer.Following{
//		After: snap.Step,
//		Apply: func(step int64, update []byte) error { ... },
//		Level: func(at int64, level bool) { ... }, // now ask to be let in
//	})
//
// # Protocol
//
// All members that have committed the same step hold the same bytes, so a snapshot is
// named by its step. A request is a line of JSON; the answer is a line of JSON, followed
// by as many raw bytes as it says.
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
// Chunks are verified one by one as they arrive, by BLAKE3. The manifest that counts is that
// of most donors, and nothing is fetched before it is known; a donor whose manifest differs
// is named in the result and not used, and one that sends a chunk with another hash is named,
// too. So as long as most of the donors are honest the others cannot forge a state. Where as
// many tell one manifest as another, that of the donor named first counts: of two nobody can
// tell which is honest. A donor that fails loses only what
// it had not sent. When nothing is left to ask for, idle donors are asked for what slow
// ones still owe, so that the slowest does not decide when the copy is complete.
//
// An update comes from one donor and has an xxhash64, which finds broken memory and broken
// links, and no forgery. Who may be a donor is decided by the network below.
//
// What a donor keeps for a joiner it keeps for the time of a lease, which each request
// renews: the snapshot, and the updates after it, of which the oldest go first when
// there are too many bytes. Memory of a joiner that died is free after one lease.
//
// A joiner that finds a fresh snapshot made for another one shares it. A state that
// rests, as between two sessions, gives a snapshot of the step it is at (Donor.Rest):
// so a joiner that cannot catch up with a running job does so in a pause of it.
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
//	                       else ErrNeverLevel says both rates
package transfer
