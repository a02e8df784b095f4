package launch

import (
	"crypto/sha256"
	"encoding/base64"
)

// machineID tells this host from others within a job, whatever they are called. It is a hash with
// the job's name, so that it says nothing about the host, nor that two jobs are on the same one.
// It is "" where nothing is known: then the host's name counts.
func machineID(job string) string { return hashMachine(kernelID(), job) }

// hashMachine is machineID of a host with a known ID.
func hashMachine(kernel, job string) string {
	if kernel == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("elrun host\x00" + job + "\x00" + kernel))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}
