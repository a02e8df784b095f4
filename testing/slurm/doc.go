// Package slurm holds the tests of elrun under a real Slurm: slurmctld, and slurmd on three hosts,
// which are namespaces of their own on one bridge. A host lives as long as its first process, the
// test's own binary, and so ends with the test, whatever ends it.
//
//	go test ./testing/slurm
//	go test ./testing/slurm -long -v
//
// Without root or Slurm the tests are skipped, but with ELRUN_CI set they fail.
package slurm
