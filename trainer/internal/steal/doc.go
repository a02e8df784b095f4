// Package steal moves unstarted microbatches between the ranks of a host within a step: it has the
// word by which they change their owner, decides whom a rank robs, and computes afterwards which
// rank holds which microbatches. It is pure: times come from the caller, in nanoseconds.
//
// The microbatches of a step that no rank holds are in one order, the same at all ranks: by the rank
// whose share they are in, and then by number. A position is an index of this order, and each rank's
// share is a range of positions.
package steal
