// Package chaos runs jobs of real processes on one host for a long time. It kills, stops, adds and removes processes, and checks
// the results: no step, sample or bit of the weights is lost, and no process or memory remains. It consists of tests:
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
//	-transport=T transport in the tests of kills and of shared memory, to compare
//	-minutes=M   length of TestSoak, instead of a few seconds
//	-keep=DIR    folder for the whole event logs of tests that fail
//	-seed=S      repeats the choices of an earlier run, not its timing
//
// elrun starts the test binary itself as the program under test, in one of two roles. One is the trainer, with a small network
// on generated data, at a set speed (role_test.go). The other only makes collective calls (shm_role_test.go). Tests read the event
// log while it grows, and find processes in /proc. A test that fails logs its seed, the output, the end of the event log, and the
// stacks of all goroutines in processes that still run.
package chaos
