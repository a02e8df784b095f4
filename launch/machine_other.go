//go:build !linux

package launch

// kernelID returns "": it is known on Linux only.
func kernelID() string { return "" }
