package inpeer

import (
	"os"
	"strings"
)

// kernelID identifies the running kernel and the network namespace of this process; it is "" if
// unknown. The boot ID is preferred to /etc/machine-id, because copies of a virtual machine, and
// containers of one image, often have the same machine-id. Containers with their own network
// namespaces count as separate hosts, because all data between them crosses a network.
func kernelID() string {
	space, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return ""
	}
	for _, name := range []string{"/proc/sys/kernel/random/boot_id", "/etc/machine-id"} {
		text, err := os.ReadFile(name)
		if id := strings.TrimSpace(string(text)); err == nil && id != "" {
			return id + " " + space
		}
	}
	return ""
}
