// Package chaos runs jobs of real processes on one host for a long time. It kills, stops, adds and removes processes, and checks
// the results: no step, sample or bit of the weights is lost, and no process or memory remains. It consists of tests:
//
//	go test ./testing/chaos                                  short forms, under a minute in all
//	go test -v -run TestKill ./testing/chaos -long           kills of one of four or five peers
//	go test -v -run TestKillLarge ./testing/chaos -long      kills of peers with 16 MiB, 1 GB and 4 GB; takes 12 GB
//	go test -v -run 'Many|Idle' ./testing/chaos -long -runs=5 many peers on few cores
//	go test -v ./testing/chaos -long                         all long forms; the soak for a minute
//	go test -v -run TestSoak ./testing/chaos -minutes=20     the soak
//	go test -v -run TestSchedules ./testing/chaos -runs=100   jobs to which anything happens, of the seeds from -seed on
//	make schedules RUNS=500 SEED=1                           the same
//	make chaos                                               all long forms, and ./testing/netchaos -long
//	make soak MINUTES=20                                     the soak
//
// Flags of this package, after its path:
//
//	-long        the long forms; the log of a test has its measurements
//	-runs=N      runs of each of the tests TestKill..., instead of 1 to 6, or of 10 to 200 with -long; seeds of TestSchedules
//	-transport=T transport in the tests of kills and of shared memory, for comparisons
//	-minutes=M   length of TestSoak, instead of 8 seconds, or of a minute with -long
//	-keep=DIR    folder for the whole event logs of tests that fail
//	-seed=S      repeats the choices of an earlier run, not its timing
//
// elrun starts the test binary itself as the program under test, in one of three roles. The first
// trains a small network on generated data at a set speed (role_test.go). The second only makes
// collective calls (shm_role_test.go). The third joins and waits (idle_test.go). Tests read the
// event log while it grows, and find processes in /proc. A test that fails logs its seed, the
// output, the end of the event log, and the stacks of all goroutines in processes that still run.
package chaos
