// Package process is for tests that run elrun as users do, as programs of their own: it
// builds elrun, starts jobs, waits for what they print or write to their event logs, and
// ends and tells what is left of them.
//
//	func TestMain(m *testing.M) {
//		if os.Getenv("ROLE") != "" { // elrun's program is the test's own binary
//			os.Exit(play())
//		}
//		os.Exit(process.WithElrun(m.Run))
//	}
//
//	func TestDeath(t *testing.T) {
//		job := process.NewJob(t)
//		log := process.NewLog(t, filepath.Join(t.TempDir(), "events"))
//		cmd := exec.Command(process.Elrun(), "-n", "3", "--name", job.Name, "--events", log.Path, process.Self(t))
//		cmd.Env = append(os.Environ(), "ROLE=train")
//		elrun := job.Start(t, cmd)
//		elrun.Until(t, "a step", func() bool { return log.Read(t).Step > 0 })
//		process.Signal(t, job.Peers(t)[0].PID, syscall.SIGKILL)
//		...
//		if status := elrun.Wait(t); status != 0 {
//			t.Errorf("status %d", status)
//		}
//	}
//
// What is waited for is a condition, which is looked at every few milliseconds. A test fails
// if it does not come true within Limit. Peers are found by their environment in /proc, so
// the package is of use on Linux only.
package process
