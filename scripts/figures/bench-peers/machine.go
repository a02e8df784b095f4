package main

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/elrun/elrun/internal/cores"
)

// machine has the properties of the machine and of its software that affect the measurements.
type machine struct {
	Day     string `json:"day"`
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"`
	Kernel  string `json:"kernel"`
	Go      string `json:"go"`
	OpenMPI string `json:"open_mpi"`
	Torch   string `json:"torch"`
	Ptrace  string `json:"ptrace_scope"` // setting of Yama; "absent" if the kernel has no Yama
	TCP     string `json:"tcp"`          // congestion control
}

// thisMachine returns the properties of this machine. A property that cannot be found is "unknown".
func thisMachine(python string) machine {
	m := machine{Day: time.Now().UTC().Format(time.DateOnly), CPU: "unknown", Cores: cores.Count(), Go: runtime.Version(),
		Kernel: firstLine("uname", "-r"), OpenMPI: firstLine("mpirun", "--version"),
		Torch: firstLine(python, "-c", "import torch; print(torch.__version__)"), Ptrace: "absent",
		TCP: firstLine("cat", "/proc/sys/net/ipv4/tcp_congestion_control")}
	info, _ := os.ReadFile("/proc/cpuinfo") // without this file the model is unknown
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

// firstLine returns the first line that a command prints.
func firstLine(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}
