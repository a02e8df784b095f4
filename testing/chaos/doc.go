// Package chaos runs jobs of real processes on one host for long, does to them all that
// can happen to processes, and checks that nothing is lost: no step, no sample, no bit of
// the weights, no process, no memory. It consists of tests:
//
//	go test ./testing/chaos                                  short forms, under a minute in all
//	go test -v -run TestKill ./testing/chaos -long           runs in which one of four or five is killed
//	go test -v -run 'Many|Idle' ./testing/chaos -long -runs=5 many peers on few cores
//	go test -v ./testing/chaos -long                         all long forms; the soak for a minute
//	go test -v -run TestSoak ./testing/chaos -minutes=20     the soak
//	make chaos; make soak MINUTES=20                         the same
//
// Flags of this package, after its path:
//
//	-long        the long forms; what they measure is in the test's log
//	-runs=N      runs of each of the tests TestKill..., instead of 2 to 5, or 100 or 200
//	-transport=T of the tests of kills and of shared memory, to compare
//	-minutes=M   length of TestSoak, instead of a few seconds
//	-keep=DIR    folder for the whole event logs of tests that fail
//	-seed=S      repeats the choices of an earlier run, not its timing
//
// The program under test is the test binary itself, started again by elrun in a role
// (role_test.go): the trainer with a small network on made-up data, at a set pace; or a
// program that does nothing but call (shm_role_test.go). Tests follow the event log while it grows, and look into /proc for what runs. A test that
// fails shows the seed, the output, the end of the log and the stacks of all goroutines of
// the processes that still ran.
package chaos
