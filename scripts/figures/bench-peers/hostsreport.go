package main

import (
	"fmt"
	"math"
	"strings"
)

// These are the properties of a link of the lab. A frame has 1500 bytes and a header of 14. Of these, 1448 bytes are user data.
const (
	linkRate    = 1e9 / 8 // bytes per second
	linkPayload = linkRate * 1448 / 1514
	// wireOverhead is the goal for the bytes that a host sends for each byte of data. It includes
	// frame headers (4.6 %), record headers and acknowledgements.
	wireOverhead = 1.07
)

// ringBound returns the shortest possible time of a ring over n hosts, in microseconds.
func ringBound(n, bytes int) float64 {
	return 2 * float64(n-1) / float64(n) * float64(bytes) / linkPayload * 1e6
}

// linkRatio returns which fraction of the rate of the link with a delay a call of two ranks uses.
// In such a call each rank sends the vector once.
func linkRatio(bytes int, us float64) float64 { return float64(bytes) / us * 1e6 / delayRate }

// hostsReport writes the measured parts of the report about several hosts.
func (s *study) hostsReport(b *strings.Builder) {
	b.WriteString("\n## Several hosts\n\nHosts are network namespaces on one machine, so all share its cores: GOMAXPROCS is a host's part of them, at least 1.\n")
	s.fourReport(b)
	s.freeReport(b)
	s.twoReport(b)
	s.delayReport(b)
	for _, part := range []string{partHosts, partFree, partTwo, partDelay} {
		for _, side := range []string{elrunSealed, elrunPlain, glooTCP, mpiTCP} {
			if why := s.Missing[part+", "+side]; why != "" {
				why, _, _ = strings.Cut(why, "\n")
				fmt.Fprintf(b, "\nNot measured: %s, %s: %s\n", part, side, why)
			}
		}
	}
}

func (s *study) fourReport(b *strings.Builder) {
	sizes := s.sizes(partHosts)
	if len(sizes) == 0 {
		return
	}
	const n = 4
	b.WriteString("\n### Four hosts at 1 Gbit/s\n\nMedians in microseconds; in brackets how much of the ring's bound it reaches, " +
		"2 (n-1)/n bytes at 956 Mbit/s of payload.\n\n| bytes | bound |")
	names := []string{elrunSealed, elrunPlain, glooTCP}
	for _, side := range names {
		b.WriteString(" " + side + " |")
	}
	b.WriteString("\n| --- | --- |" + strings.Repeat(" --- |", len(names)) + "\n")
	for _, bytes := range sizes {
		limit := ringBound(n, bytes)
		fmt.Fprintf(b, "| %s | %s |", size(bytes), micros(limit))
		for _, side := range names {
			us := median(s.times(partHosts, side, n, bytes))
			fmt.Fprintf(b, " %s", micros(us))
			if bytes >= 1<<20 && !math.IsNaN(us) {
				fmt.Fprintf(b, " (%.1f %%)", 100*limit/us)
			}
			b.WriteString(" |")
		}
		b.WriteString("\n")
	}
}

func (s *study) freeReport(b *strings.Builder) {
	names := []string{elrunPlain, glooTCP, elrunSealed, mpiTCP}
	for _, bytes := range s.sizes(partFree) {
		fmt.Fprintf(b, "\n### Four hosts without a limit of the links\n\nThe cores are the limit. Medians in microseconds for a call of %s:\n\n"+
			"| %s |\n|%s\n|", size(bytes), strings.Join(names, " | "), strings.Repeat(" --- |", len(names)))
		for _, side := range names {
			fmt.Fprintf(b, " %s |", micros(median(s.times(partFree, side, 4, bytes))))
		}
		b.WriteString("\n")
	}
}

func (s *study) twoReport(b *strings.Builder) {
	for _, bytes := range s.sizes(partTwo) {
		sent := median(s.times(partTwo, elrunSealed, 4, bytes))
		if math.IsNaN(sent) {
			continue
		}
		// In a ring of two hosts, each host sends one half of the vector to be added, and the other half as a result.
		fmt.Fprintf(b, "\n### Two hosts of two ranks\n\nFor a call of %s the host that sends more sends %s bytes, by the counters of the network "+
			"devices, with headers and acknowledgements: %.3f times the least, which is the vector once.\n", size(bytes), thousands(int64(sent)), sent/float64(bytes))
	}
}

func (s *study) delayReport(b *strings.Builder) {
	for _, bytes := range s.sizes(partDelay) {
		us := median(s.times(partDelay, elrunSealed, 2, bytes))
		if math.IsNaN(us) {
			continue
		}
		fmt.Fprintf(b, "\n### 100 ms of round trip\n\nTwo hosts, 500 Mbit/s and 50 ms each way by a relay in user space: a call of %s takes %.2f s, "+
			"which is %.0f Mbit/s each way, %.0f %% of the link.\n", size(bytes), us/1e6, float64(bytes)*8/us, 100*linkRatio(bytes, us))
	}
}
