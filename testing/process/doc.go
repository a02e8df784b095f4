// Package process helps tests that run elrun as a separate program, as users do. It builds elrun, starts jobs, and waits for
// their output and their events. At the end of a test it kills the remaining processes, and reports them.
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
// Functions that wait evaluate a condition every few milliseconds. A test fails if the condition is
// not true within Limit. The package finds peers by their environment in /proc, so it works on
// Linux only.
package process
