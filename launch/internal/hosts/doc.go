// Package hosts connects a launcher to the agents on other hosts, and distributes the peers over them.
// It runs in the launcher, and in elrun doctor.
//
// A Host is one host with its agent. A List has the hosts of a job: which peers run where, and which
// hosts reach each other.
package hosts
