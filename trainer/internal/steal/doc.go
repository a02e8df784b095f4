// Package steal moves unstarted microbatches between ranks within a step: it has the word by which they
// change their owner, decides whom a rank robs, and computes afterwards which rank holds which
// microbatches. Ranks of a host change each other's words; a rank of another host asks by notes, and
// the part of the owner that gets notes changes the word. Times come from the caller, in nanoseconds;
// only a rank that waits for the answer of another host uses a timer.
//
// The microbatches of a step that no rank holds are in one order, the same at all ranks: by the rank
// whose share they are in, and then by number. A position is an index of this order, and each rank's
// share is a range of positions.
package steal
