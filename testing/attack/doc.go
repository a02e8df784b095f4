// Package attack runs a job of real processes and attacks it. Most attackers are no members of the
// job. They hold a ticket, or have none. None of their attacks may affect the job: no member is
// lost, put out or admitted, no view changes, and the result is right. In TestCheat and
// TestForgedState the attacker is a member. The package consists of tests:
//
//	go test ./testing/attack                  each attack for a second
//	go test -v ./testing/attack -long         for longer, with the members' step times
//
// With -cpus the job runs on processors of its own, so that the attackers' computation does not
// make steps longer:
//
//	taskset -c 1 go test -v ./testing/attack -run 'Quiet|TicketHolders' -long -cpus 0
//
// With the flag -only letters,offers the tests make only these two attacks.
//
// elrun starts the test binary itself as the program under test (role_test.go). The result of the
// program is a hash over the sums of all steps. An attacker (attacker_test.go) is a libp2p host in
// the process of the test. Like a newcomer, an attacker shows its ticket to a member, gets the list
// of members and shows the ticket to all of them. Then it sends messages that break the protocol.
// letters_test.go and requests_test.go have a function for each attack; attack_test.go runs all of
// them together.
package attack
