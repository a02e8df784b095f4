// Package slurm tests elrun under a real Slurm: slurmctld, and slurmd on three hosts. The hosts are namespaces that one bridge
// connects. The first process of a host is the test binary. The host ends with it, and it ends with the test, whatever ends the
// test.
//
//	go test ./testing/slurm
//	go test ./testing/slurm -long -v
//
// Without root or Slurm the tests are skipped. If ELRUN_CI is set they fail instead.
package slurm
