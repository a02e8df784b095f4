// Package nodes decides when the services and tasks of a program start, stop and start again. A Plan
// does no I/O and reads no clock. The launcher obeys one, and so does a program that runs in one process.
package nodes
