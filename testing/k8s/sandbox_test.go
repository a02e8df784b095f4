package k8s

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/testing/dns"
	"github.com/elrun/elrun/testing/process"
)

// sandboxWord, as the first argument, makes the test binary the first process of a container. The
// second argument is the sandbox, as JSON.
const sandboxWord = "sandbox"

// sandbox is the specification of a container.
type sandbox struct {
	Host    string // host name
	Root    string // folder of the image
	Mounts  []binding
	User    int
	Command []string // the first word is a path in the image
	Env     []string
}

// binding is a folder or file of this machine that is mounted in a container.
type binding struct {
	From, To string
	ReadOnly bool
}

// startSandbox starts a container in a network namespace. The container gets further namespaces of
// its own. Its first process is a child of the test process, and is killed when the test process
// ends.
func startSandbox(space string, s sandbox, out *os.File) (*exec.Cmd, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, sandboxWord, string(text))
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	return cmd, inNetwork(space, cmd.Start)
}

// inNetwork calls f in a network namespace.
func inNetwork(space string, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	there, err := os.Open("/run/netns/" + space)
	if err != nil {
		return err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	return errors.Join(f(), unix.Setns(int(home.Fd()), unix.CLONE_NEWNET))
}

// enter replaces this process by the container's command. It returns only on an error.
func (s sandbox) enter() error {
	runtime.LockOSThread() // the following calls must be on one thread, which becomes the process
	root, err := s.mount()
	if err != nil {
		return err
	}
	for _, do := range []func() error{
		func() error { return unix.Sethostname([]byte(s.Host)) },
		func() error { return unix.Chroot(root) },
		func() error { return unix.Chdir("/") },
		func() error { return unix.Setgroups([]int{s.User}) },
		func() error { return unix.Setresgid(s.User, s.User, s.User) },
		func() error { return unix.Setresuid(s.User, s.User, s.User) },
		func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return unix.Exec(s.Command[0], s.Command, s.Env)
}

// mount creates the file system of the container and returns its folder. Only mounted folders are writable. There is no /dev/shm.
func (s sandbox) mount() (root string, err error) {
	root = s.Root
	all := []func() error{
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return bind(binding{root, root, true}) },
		func() error { return unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, "") },
		func() error { return unix.Mount("tmpfs", filepath.Join(root, "dev"), "tmpfs", 0, "mode=755") },
	}
	for _, name := range []string{"null", "zero", "urandom"} {
		device := filepath.Join(root, "dev", name)
		all = append(all, func() error {
			return errors.Join(os.WriteFile(device, nil, 0o600), bind(binding{"/dev/" + name, device, false}))
		})
	}
	for _, m := range s.Mounts {
		all = append(all, func() error { return bind(binding{m.From, filepath.Join(root, m.To), m.ReadOnly}) })
	}
	for _, do := range all {
		if err := do(); err != nil {
			return "", err
		}
	}
	return root, nil
}

// bind mounts a folder or file at another path.
func bind(b binding) error {
	err := unix.Mount(b.From, b.To, "", unix.MS_BIND, "")
	if err == nil && b.ReadOnly {
		err = unix.Mount("", b.To, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	if err != nil {
		return fmt.Errorf("mount %s at %s: %w", b.From, b.To, err)
	}
	return nil
}

// prepareRoot creates the mount points in an image.
func prepareRoot(t *testing.T, root string) {
	t.Helper()
	for _, dir := range []string{"proc", "dev", "tmp", "etc/elrun"} {
		run(t, "mkdir", "-p", filepath.Join(root, dir))
	}
	write(t, filepath.Join(root, "etc/resolv.conf"), "")
}

// enterSandbox is the main function of the first process in a container.
func enterSandbox(text string) int {
	var s sandbox
	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		err = s.enter()
	}
	fmt.Fprintln(os.Stderr, "sandbox:", err)
	return 128
}

// The command of a manifest runs as the first process of a container. It runs as an unprivileged user, on a read-only file system
// without /dev/shm. It adopts orphans, and forwards SIGTERM.
func TestFirstProcess(t *testing.T) {
	needRoot(t, "ip")
	dir := t.TempDir()
	openPath(t, dir)
	im := buildImage(t, filepath.Join(dir, "root"), map[string]string{"bin/elrun": process.Elrun(), "bin/mnist": process.Self(t), "data/mnist": t.TempDir()})
	prepareRoot(t, im.root)
	b := newBridge(t)
	space, addr, err := b.add()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.remove(space); err != nil {
			t.Error(err)
		}
	})
	server := dns.Start(t, b.host()+":53")
	server.Set("mnist", netip.MustParseAddr(addr))
	log := filepath.Join(dir, "log")
	says := func(text string) bool {
		all, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(all), text)
	}
	cmd, ended := startOne(t, space, onlySandbox(t, dir, im, addr, b.host()), log)
	process.Until(t, "the end of an orphan", func() bool { return says("no orphan is left") })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	process.Until(t, "the end of the container", func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	if status := cmd.ProcessState.ExitCode(); status != 128+int(syscall.SIGTERM) {
		t.Errorf("status %d", status)
	}
}

// openPath makes a folder below /tmp accessible to all users, because pods do not run as the test's
// user.
func openPath(t *testing.T, dir string) {
	t.Helper()
	for ; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		run(t, "chmod", "o+x", dir)
	}
}

// onlySandbox returns the container of the only pod of a manifest. Its volumes are in a folder.
func onlySandbox(t *testing.T, dir string, im image, addr, server string) sandbox {
	t.Helper()
	m := readManifest(t, "--name", "mnist", "--image", "x", "--peers", "1", "--", "mnist", orphanWord)
	write(t, filepath.Join(dir, "key"), m.key)
	write(t, filepath.Join(dir, "resolv.conf"), "nameserver "+server+"\n")
	run(t, "chmod", "o+r", filepath.Join(dir, "key"), filepath.Join(dir, "resolv.conf"))
	run(t, "install", "-d", "-o", "65532", filepath.Join(dir, "tmp"))
	write(t, filepath.Join(im.root, "etc/elrun/key"), "") // a mount point
	s := sandbox{Host: "mnist-0", Root: im.root, User: 65532, Env: append(im.env, "HOME=/tmp", "TMPDIR=/tmp"), Mounts: []binding{
		{filepath.Join(dir, "tmp"), "/tmp", false}, {filepath.Join(dir, "key"), "/etc/elrun/key", true}, {filepath.Join(dir, "resolv.conf"), "/etc/resolv.conf", true}}}
	for _, w := range m.command {
		s.Command = append(s.Command, expand(w, map[string]string{"POD_IP": addr}))
	}
	found, err := im.find(s.Command[0])
	if err != nil {
		t.Fatal(err)
	}
	s.Command[0] = found
	return s
}

// startOne starts a container, which ends with the test. It returns a channel that is closed when the container has ended. A
// failing test logs the output.
func startOne(t *testing.T, space string, s sandbox, log string) (*exec.Cmd, <-chan struct{}) {
	t.Helper()
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd, err := startSandbox(space, s, out)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // cmd keeps the status
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails only if it has ended
		<-ended
		if all, _ := os.ReadFile(log); t.Failed() {
			t.Logf("%s", all)
		}
	})
	return cmd, ended
}

// orphanWord, as the first argument, makes the test binary a program that leaves an orphan.
const orphanWord = "orphan"

// orphan is the main function of that program (one argument), of its child (two), and of the
// child's child (more).
func orphan(args int) int {
	switch args {
	case 1:
		return leaveOrphan()
	case 2:
		return bequeath()
	}
	return 0
}

// leaveOrphan starts a child that starts a process and ends. It waits until this process, an
// orphan, is reaped, and then runs until a signal ends it.
func leaveOrphan() int {
	out, err := exec.Command(os.Args[0], orphanWord, "parent").Output()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for {
		if _, err := os.Stat("/proc/" + string(out)); errors.Is(err, os.ErrNotExist) {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	if _, err := os.Stat("/dev/shm"); !errors.Is(err, os.ErrNotExist) || os.WriteFile("/file", nil, 0o600) == nil {
		fmt.Println("there is /dev/shm, or the root can be written to:", err)
		return 1
	}
	fmt.Println("no orphan is left")
	<-time.After(time.Hour)
	return 0
}

// bequeath starts a process that ends at once, prints its ID, and does not wait for it.
func bequeath() int {
	cmd := exec.Command(os.Args[0], orphanWord, "child", "")
	if err := cmd.Start(); err != nil {
		return 1
	}
	fmt.Print(cmd.Process.Pid)
	return 0
}

// bridge is a network for pods. This machine has the address .254 in it.
type bridge struct {
	name, net string // net has the first three bytes of all addresses
	used      int
}

// newBridge creates a bridge.
func newBridge(t *testing.T) *bridge {
	t.Helper()
	b := &bridge{name: "k" + strconv.Itoa(os.Getpid()), net: "10.239." + strconv.Itoa(os.Getpid()%250)}
	run(t, "ip", "link", "add", b.name, "type", "bridge")
	t.Cleanup(func() { run(t, "ip", "link", "delete", b.name) })
	run(t, "ip", "address", "add", b.host()+"/24", "dev", b.name)
	run(t, "ip", "link", "set", b.name, "up")
	return b
}

// host returns the address of this machine.
func (b *bridge) host() string { return b.net + ".254" }

// commands runs ip with several commands, one after the other.
func commands(all ...[]string) error {
	for _, args := range all {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	return nil
}

// add creates a network namespace with a new address.
func (b *bridge) add() (space, addr string, err error) {
	b.used++
	space = b.name + "-" + strconv.Itoa(b.used)
	addr = b.net + "." + strconv.Itoa(b.used)
	return space, addr, commands(
		[]string{"netns", "add", space},
		[]string{"link", "add", space, "type", "veth", "peer", "name", "eth0", "netns", space},
		[]string{"link", "set", space, "master", b.name, "up"},
		[]string{"-n", space, "address", "add", addr + "/24", "dev", "eth0"},
		[]string{"-n", space, "link", "set", "lo", "up"},
		[]string{"-n", space, "link", "set", "eth0", "up"},
	)
}

// remove removes a namespace, which also removes its link.
func (b *bridge) remove(space string) error { return commands([]string{"netns", "delete", space}) }
