package main

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/elrun/elrun/internal/cores"
)

// machine is what the figures depend on besides the programs.
type machine struct {
	Day     string `json:"day"`
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"`
	Kernel  string `json:"kernel"`
	Go      string `json:"go"`
	OpenMPI string `json:"open_mpi"`
	Torch   string `json:"torch"`
	Ptrace  string `json:"ptrace_scope"` // of Yama; "absent" where the kernel has none
	TCP     string `json:"tcp"`          // congestion control
}

// thisMachine looks around. What cannot be found out is "unknown".
func thisMachine(python string) machine {
	m := machine{Day: time.Now().UTC().Format(time.DateOnly), CPU: "unknown", Cores: cores.Count(), Go: runtime.Version(),
		Kernel: firstLine("uname", "-r"), OpenMPI: firstLine("mpirun", "--version"),
		Torch: firstLine(python, "-c", "import torch; print(torch.__version__)"), Ptrace: "absent",
		TCP: firstLine("cat", "/proc/sys/net/ipv4/tcp_congestion_control")}
	info, _ := os.ReadFile("/proc/cpuinfo") // without it the model stays unknown
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	if scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil {
		m.Ptrace = strings.TrimSpace(string(scope))
	}
	return m
}

// firstLine is what a command prints first.
func firstLine(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}
