package bench

import (
	"os"
	"strconv"
	"strings"
)

// anonymous returns the bytes of resident memory that are this process's own: neither
// files nor memory that it shares. Where the system does not tell, it is 0.
func anonymous() int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	return parseAnonymous(string(text))
}

// parseAnonymous finds RssAnon in the text of /proc/PID/status; see proc(5).
func parseAnonymous(status string) int64 {
	_, rest, _ := strings.Cut(status, "\nRssAnon:")
	line, _, _ := strings.Cut(rest, "\n")
	digits, ok := strings.CutSuffix(strings.TrimSpace(line), " kB")
	n, err := strconv.ParseInt(digits, 10, 50)
	if !ok || err != nil {
		return 0
	}
	return n << 10
}
