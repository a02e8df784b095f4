//go:build race

package race

// Enabled reports whether the race detector looks on.
const Enabled = true
