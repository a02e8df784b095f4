package launch

import (
	"os"
	"strings"
)

// kernelID names the running system and the network namespace of this process in it; "" where
// that is not known. The boot ID goes before /etc/machine-id: copies of a virtual machine, and
// containers of one image, often share the latter, and then two hosts would be taken for one.
// Containers with networks of their own count as hosts of their own, since between them everything
// goes over a network.
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
