package launch

import (
	"bytes"
	"os"
	"strconv"
)

// stopped reports whether a process is stopped by a signal, as with SIGSTOP. One that a
// debugger holds is not.
func stopped(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && parseStopped(stat)
}

// parseStopped reads the state in /proc/PID/stat: "pid (name) state ...", where the name
// may have brackets itself.
func parseStopped(stat []byte) bool {
	_, rest, ok := bytes.Cut(stat, []byte("("))
	end := bytes.LastIndexByte(rest, ')')
	return ok && end >= 0 && bytes.HasPrefix(rest[end:], []byte(") T"))
}
