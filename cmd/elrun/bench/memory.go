package bench

import (
	"os"
	"strconv"
	"strings"
)

// anonymous returns the bytes of anonymous resident memory of this process, which excludes files
// and shared memory; 0 if the system does not report it.
func anonymous() int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	return parseAnonymous(string(text))
}

// parseAnonymous returns RssAnon from the text of /proc/PID/status (proc(5)), in bytes.
func parseAnonymous(status string) int64 {
	_, rest, _ := strings.Cut(status, "\nRssAnon:")
	line, _, _ := strings.Cut(rest, "\n")
	digits, ok := strings.CutSuffix(strings.TrimSpace(line), " kB")
	// 50 bits, so that the shift from KiB to bytes cannot overflow.
	n, err := strconv.ParseInt(digits, 10, 50)
	if !ok || err != nil {
		return 0
	}
	return n << 10
}
