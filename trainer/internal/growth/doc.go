// Package growth decides how the batch of a job grows, and where the samples of each step then are.
//
// Noise estimates the gradient noise scale. A Rule decides from it whether the batch grows, and how the
// learning rate follows. State is the list of changes so far, which all members and checkpoints have. A
// Walk maps steps to places in the order of the samples. All is pure, so that all members come to the
// same results.
package growth
