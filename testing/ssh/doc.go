// Package ssh tests elrun -H with a real sshd. The servers belong to this user and listen on the
// loopback interface. A configuration of ssh maps several host names to each server. The tests
// create all keys, and neither use nor change the user's own keys.
//
//	go test ./testing/ssh
//	go test ./testing/ssh -run TestStart -long -v
//
// Without sshd the tests are skipped. If ELRUN_CI is set they fail instead.
package ssh
