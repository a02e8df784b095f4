// Package program runs graphs of nodes: one group of peers that trains, services that answer calls, and
// tasks that run once. Package launch has all of it under the same names, and explains it.
//
// A Program runs as goroutines of this process, or as a job of the launcher (package launch/internal/run)
// in which each process runs one node. In such a process a directory finds the services, and callers keep
// the connections to them.
package program
