// Package attack runs a job of real processes while others attack it that hold a ticket of
// the job and no place in it, or nothing at all. Each attack must leave the job as it is:
// nobody is lost, put out or let in, no view changes, and the result is right. It consists
// of tests:
//
//	go test ./testing/attack                  each attack for a second
//	go test -v ./testing/attack -long         for longer, with the members' step times
//
// With -cpus the job has processors of its own, so that what attackers compute does not count
// as what they cost the members:
//
//	taskset -c 1 go test -v ./testing/attack -run 'Quiet|TicketHolders' -long -cpus 0
//
// With -only letters,offers only these attacks are made.
//
// The program under test is the test binary itself, started again by elrun (role_test.go):
// its result is a hash over the sums of all steps. An attacker (attacker_test.go) is a host
// on libp2p in the test's process. It shows its ticket to a member as any newcomer does, learns
// of the others as newcomers do, and from then on sends what it likes. What attackers do
// stands in letters_test.go and requests_test.go, one function each; attack_test.go runs
// them all together.
package attack
