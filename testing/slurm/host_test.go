package slurm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/testing/process"
)

// host is a host of the lab.
type host struct {
	name, addr string
	dir        string // working folder of the host's processes
	pid        int    // of the first process, in the PID namespace of the test
}

// newHost starts a host that has no network yet. The host ends with the test.
func newHost(t *testing.T, name, addr, dir string) *host {
	t.Helper()
	cmd := exec.Command(process.Self(t), hostWord, name, filepath.Join(dir, "hosts"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC}
	alive, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := process.Start(t, cmd)
	t.Cleanup(func() { _ = alive.Close() }) // ends the host
	p.Expect(t, "ready")
	return &host{name, addr, dir, p.PID()}
}

// beHost is the main function of a host's first process. It sets up the host's own mounts and name.
// Then it reaps orphans until standard input ends. When the first process ends, the kernel kills
// all processes of the host.
func beHost(name, hosts string) int {
	err := errors.Join(unix.Sethostname([]byte(name)), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("proc", "/proc", "proc", 0, ""))
	for _, dir := range []string{"/run", "/dev/shm", "/sys/fs/cgroup"} { // an empty /sys/fs/cgroup hides the machine's cgroups from slurmd
		err = errors.Join(err, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"))
	}
	err = errors.Join(err, unix.Mount(hosts, "/etc/hosts", "", unix.MS_BIND, ""), os.Mkdir("/run/munge", 0o755), os.Mkdir("/run/slurmd", 0o755))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() { // runs as long as the host
		for range ended {
			for pid := 1; pid > 0; pid, _ = unix.Wait4(-1, nil, unix.WNOHANG, nil) {
			}
		}
	}()
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the end of input
	return 0
}

// on returns a command that runs on the host.
func (h *host) on(args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"--target", strconv.Itoa(h.pid), "--net", "--uts", "--mount", "--pid", "--ipc", "--wd=" + h.dir, "--"}, args...)...)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+filepath.Join(h.dir, "slurm.conf"), "TRAIN_DIR="+h.dir, "HOME="+h.dir,
		"PATH="+h.dir+":/usr/sbin:/sbin:"+os.Getenv("PATH"))
	return cmd
}

// run runs a command on the host to its end and returns its output.
func (h *host) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.on(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// connect connects the hosts by a bridge on the first one.
func connect(t *testing.T, hosts []*host) {
	t.Helper()
	first := hosts[0]
	first.run(t, "ip", "link", "add", "br0", "type", "bridge")
	for i, h := range hosts[1:] {
		port := fmt.Sprintf("p%d", i)
		first.run(t, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0")
		command(t, "nsenter", "--target", strconv.Itoa(first.pid), "--net", "ip", "link", "set", "eth0", "netns", strconv.Itoa(h.pid))
		first.run(t, "ip", "link", "set", port, "master", "br0", "up")
	}
	for i, h := range hosts {
		device := "eth0"
		if i == 0 {
			device = "br0"
		}
		h.run(t, "ip", "link", "set", "lo", "up")
		h.run(t, "ip", "address", "add", h.addr+"/24", "dev", device)
		h.run(t, "ip", "link", "set", device, "up")
	}
}

// command runs a command on this machine.
func command(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}
