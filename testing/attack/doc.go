// Package attack runs a job of real processes and attacks it. Attackers hold a ticket of the job but are no members, or have
// no ticket. No attack may affect the job: no member is lost, put out or admitted, no view changes, and the result is right. The
// package consists of tests:
//
//	go test ./testing/attack                  each attack for a second
//	go test -v ./testing/attack -long         for longer, with the members' step times
//
// With -cpus the job has processors of its own. Then step times do not include the attackers' own computation:
//
//	taskset -c 1 go test -v ./testing/attack -run 'Quiet|TicketHolders' -long -cpus 0
//
// With -only letters,offers only these attacks are made.
//
// elrun starts the test binary itself as the program under test (role_test.go). Its result is a hash over the sums of all steps.
// An attacker (attacker_test.go) is a libp2p host in the process of the test. As a newcomer does, it shows its ticket to a member
// and learns of the others. Then it sends anything. letters_test.go and requests_test.go have a function for each attack;
// attack_test.go runs all of them together.
package attack
