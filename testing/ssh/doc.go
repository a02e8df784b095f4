// Package ssh holds the tests of elrun -H over real sshd: servers of this user's own on the
// loopback interface, which the configuration of ssh makes several hosts. Nothing is asked or
// learned: keys are made on the spot.
//
//	go test ./testing/ssh
//	go test ./testing/ssh -run TestStart -long -v
//
// Without sshd the tests are skipped, but with ELRUN_CI set they fail.
package ssh
