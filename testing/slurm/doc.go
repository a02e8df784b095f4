// Package slurm tests elrun under a real Slurm: slurmctld, and slurmd on three hosts. The hosts are
// namespaces that one bridge connects. The first process of a host is the test binary. The host
// ends when its first process ends. The first process ends when the test ends or is killed.
//
//	go test ./testing/slurm
//	go test ./testing/slurm -long -v
//
// Without root or Slurm the tests are skipped. If ELRUN_CI is set they fail instead.
package slurm
