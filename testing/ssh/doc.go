// Package ssh tests elrun -H with a real sshd. The servers belong to this user and listen on the loopback interface. A
// configuration of ssh gives each several host names. The tests create all keys, and do not use or change the user's own.
//
//	go test ./testing/ssh
//	go test ./testing/ssh -run TestStart -long -v
//
// Without sshd the tests are skipped. If ELRUN_CI is set they fail instead.
package ssh
