//go:build !linux

package inpeer

// kernelID returns "": it is known on Linux only.
func kernelID() string { return "" }
