//go:build !linux

package launch

// kernelID is known on Linux only.
func kernelID() string { return "" }
