package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/elrun/elrun/cmd/elrun/bench"
)

// rig has the paths of the programs that a run starts.
type rig struct {
	self    string // this program
	elrun   string
	openmpi string // the compiled program; "" if there is no Open MPI
	gloo    string // the script; "" if there is no torch
	python  string
	iters   int // calls of each size; 0 means the number that elrun bench chooses by size
}

// side is one of the compared implementations.
type side struct {
	name  string
	about string // description for the report
	long  bool   // the runs of the side are long
	start func(r rig, ctx context.Context, n int, sizes []int) ([]*exec.Cmd, error)
}

// These are the names of the sides in tables.
const (
	elrunHeap   = "elrun shm"
	elrunAlloc  = "elrun shm, Alloc"
	elrunSealed = "elrun direct"
	elrunPlain  = "elrun direct, plain"
	elrunStream = "elrun p2p"
	mpiShared   = "Open MPI shm"
	mpiTCP      = "Open MPI TCP"
	glooTCP     = "Gloo"
	memoryBound = "2 copies + 1 add"
)

// sides returns the sides on one host, in the order in which they run.
func sides() []side {
	return []side{
		{elrunHeap, "`elrun bench --transport shm`, ordinary Go slices", false, elrunSide("--transport=shm")},
		{mpiShared, "`mpirun`, its choice inside a host; at n = 8 with `mpi_yield_when_idle`", false, mpiSide()},
		{elrunAlloc, "`elrun bench --transport shm --alloc`: slices from `collective.Alloc`", false, elrunSide("--transport=shm", "--alloc")},
		{memoryBound, "no communication: two copies and an addition of as many bytes, each core doing its half", false, boundSide},
		{elrunSealed, "`--transport direct --encrypt always`: TCP with TLS 1.3 over loopback", true, elrunSide("--transport=direct", "--encrypt=always")},
		{glooTCP, "`torch.distributed` over loopback, plaintext, in place", true, glooSide},
		{elrunPlain, "`--transport direct --encrypt never`", true, elrunSide("--transport=direct", "--encrypt=never")},
		{mpiTCP, "`mpirun --mca btl tcp,self` over loopback, plaintext", true, mpiSide("--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo")},
		{elrunStream, "`--transport p2p`: streams of libp2p, encrypted", true, elrunSide("--transport=p2p")},
	}
}

// elrunSide returns a function that starts elrun bench.
func elrunSide(flags ...string) func(rig, context.Context, int, []int) ([]*exec.Cmd, error) {
	return func(r rig, ctx context.Context, n int, sizes []int) ([]*exec.Cmd, error) {
		args := []string{"bench", "allreduce", "--json", "-n", strconv.Itoa(n), "--sizes", list(sizes), "--iters", strconv.Itoa(r.iters)}
		return []*exec.Cmd{exec.CommandContext(ctx, r.elrun, append(args, flags...)...)}, nil
	}
}

// mpiSide returns a function that starts mpirun. Environment variables let mpirun run as root,
// which it refuses by default.
func mpiSide(flags ...string) func(rig, context.Context, int, []int) ([]*exec.Cmd, error) {
	return func(r rig, ctx context.Context, n int, sizes []int) ([]*exec.Cmd, error) {
		if r.openmpi == "" {
			return nil, fmt.Errorf("no mpicc or mpirun here")
		}
		args := []string{"--oversubscribe", "-n", strconv.Itoa(n)}
		if n >= 8 {
			args = append(args, "--mca", "mpi_yield_when_idle", "1")
		}
		cmd := exec.CommandContext(ctx, "mpirun", append(append(args, flags...), r.openmpi, calls(r, sizes))...)
		cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
		return []*exec.Cmd{cmd}, nil
	}
}

// glooSide starts a process for each rank.
func glooSide(r rig, ctx context.Context, n int, sizes []int) ([]*exec.Cmd, error) {
	if r.gloo == "" {
		return nil, fmt.Errorf("no torch.distributed for %s here", r.python)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	var all []*exec.Cmd
	for rank := range n {
		cmd := exec.CommandContext(ctx, r.python, r.gloo, calls(r, sizes))
		cmd.Env = append(os.Environ(), glooEnv("127.0.0.1", port, "lo", n, rank)...)
		all = append(all, cmd)
	}
	return all, nil
}

// glooEnv returns the environment variables with which a rank of Gloo finds the other ranks.
func glooEnv(master string, port int, device string, n, rank int) []string {
	return []string{"MASTER_ADDR=" + master, fmt.Sprintf("MASTER_PORT=%d", port), "GLOO_SOCKET_IFNAME=" + device,
		fmt.Sprintf("WORLD_SIZE=%d", n), fmt.Sprintf("RANK=%d", rank)}
}

// boundSide starts this program with the command that measures the limit of memory.
func boundSide(r rig, ctx context.Context, n int, sizes []int) ([]*exec.Cmd, error) {
	return []*exec.Cmd{exec.CommandContext(ctx, r.self, "bound", strconv.Itoa(n), calls(r, sizes))}, nil
}

// freePort returns a port on which no program listens at the moment.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// list formats sizes for elrun bench.
func list(sizes []int) string {
	var out []string
	for _, s := range sizes {
		out = append(out, strconv.Itoa(s))
	}
	return strings.Join(out, ",")
}

// calls formats sizes for the programs of Open MPI, Gloo and bound: each size with the number of
// calls that elrun bench makes for this size.
func calls(r rig, sizes []int) string {
	var out []string
	for _, s := range sizes {
		out = append(out, fmt.Sprintf("%d:%d", s, bench.Iterations(r.iters, s)))
	}
	return strings.Join(out, ",")
}
