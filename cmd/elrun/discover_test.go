package main

import "testing"

func TestDiscoverUsage(t *testing.T) {
	usageErrors(t, map[string]string{
		"--key-file x ls":                               "--key-file needs --discover",
		"--discover dns:x ls":                           "needs --key-file",
		"--discover dns:x --key-file /dev/null ls":      "needs --name",
		"--discover x --name a --key-file /dev/null ls": "want dns:NAME",
		"--discover dns:x --name a --key-file /none ls": "--key-file: open /none",
		"--discover dns:x --key-file x -H a ls":         "in one way",
		"--ready-port=-1 ls":                            "want 1 to 65535",
		"--start-with 0 ls":                             "want at least one",
		"--discover-timeout 0s ls":                      "want more than 0",
		"k8s ls":                                        "missing flags",
		"k8s --name a --image i --peers 2 --max 1 ls":   "--max 1 with",
	})
}
