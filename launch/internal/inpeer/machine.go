package inpeer

import (
	"crypto/sha256"
	"encoding/base64"
)

// machineID distinguishes this host from other hosts of a job, independently of their names. It is
// a hash, so that it does not reveal the host, and includes the job's name, so that it does not
// reveal that two jobs run on the same host. It is "" if the kernel has no known ID; the host's
// name then identifies the host.
func machineID(job string) string { return hashMachine(kernelID(), job) }

// hashMachine returns machineID for a kernelID.
func hashMachine(kernel, job string) string {
	if kernel == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("elrun host\x00" + job + "\x00" + kernel))
	// 12 bytes make collisions of hosts unlikely, and views, which contain the IDs, stay short.
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}
