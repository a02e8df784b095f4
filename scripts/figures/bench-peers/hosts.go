package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// across runs an AllReduce of one side over the hosts of a lab.
type across struct {
	lab   *lab
	rig   rig
	each  int      // ranks on each host
	flags []string // flags of elrun run and elrun join
}

// ranks returns the total number of ranks.
func (a across) ranks() int { return a.each * len(a.lab.hosts) }

// elrun runs elrun bench as a job of several hosts.
func (a across) elrun(ctx context.Context, sizes []int) ([]result, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	job := fmt.Sprintf("bench-peers-%d-%d", os.Getpid(), time.Now().UnixNano())
	program := []string{"--", a.rig.elrun, "bench-peer", "--json", "--group=" + strconv.Itoa(a.ranks()),
		"--sizes=" + list(sizes), "--iters=" + strconv.Itoa(a.rig.iters), "allreduce"}
	flags := append([]string{"-n", strconv.Itoa(a.each)}, a.flags...)
	c := newCrew(len(a.lab.hosts), cancel)
	c.start(a.lab.inside(ctx, 0, slices.Concat([]string{a.rig.elrun, "run", "--name", job}, flags, program)...))
	ticket, err := a.ticket(ctx, job)
	if err != nil {
		cancel()
		_, ended := c.wait(nil)
		return nil, errors.Join(err, ended)
	}
	for host := 1; host < len(a.lab.hosts); host++ {
		c.start(a.lab.inside(ctx, host, slices.Concat([]string{a.rig.elrun, "join", ticket}, flags, program)...))
	}
	return c.wait(sizes)
}

// ticket returns a ticket of the job. It runs elrun ticket repeatedly until the job has started.
func (a across) ticket(ctx context.Context, job string) (string, error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for tries := 0; ; tries++ {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-tick.C:
		}
		cmd := a.lab.inside(ctx, 0, a.rig.elrun, "ticket", job)
		var complaint strings.Builder
		cmd.Stderr = &complaint
		out, err := cmd.Output()
		if err == nil {
			return strings.TrimSpace(string(out)), nil
		}
		if tries == 100 {
			return "", explain(cmd, err, complaint.String())
		}
	}
}

// gloo runs the ranks of Gloo on the hosts.
func (a across) gloo(ctx context.Context, sizes []int) ([]result, error) {
	if a.rig.gloo == "" {
		return nil, fmt.Errorf("no torch.distributed for %s here", a.rig.python)
	}
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	c := newCrew(a.ranks(), cancel)
	const port = 29400 // free, because no other program runs in these namespaces
	for rank := range a.ranks() {
		cmd := a.lab.inside(ctx, rank/a.each, a.rig.python, a.rig.gloo, calls(a.rig, sizes))
		cmd.Env = append(os.Environ(), glooEnv(addr(0), port, "eth0", a.ranks(), rank)...)
		c.start(cmd)
	}
	return c.wait(sizes)
}

// openmpi runs the ranks of Open MPI on the hosts.
func (a across) openmpi(ctx context.Context, sizes []int) ([]result, error) {
	if a.rig.openmpi == "" {
		return nil, fmt.Errorf("no mpicc or mpirun here")
	}
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	agent, err := filepath.Abs("scripts/figures/bench-peers/peers/agent.sh")
	if err != nil {
		return nil, err
	}
	var addrs []string
	for host := range a.lab.hosts {
		addrs = append(addrs, fmt.Sprintf("%s:%d", addr(host), a.each))
	}
	cmd := exec.CommandContext(ctx, agent, addr(0), "mpirun", "-H", strings.Join(addrs, ","), "--mca", "plm_rsh_agent", agent,
		"--mca", "oob_tcp_if_include", "eth0", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "eth0",
		"--mca", "mpi_yield_when_idle", "1", a.rig.openmpi, calls(a.rig, sizes))
	cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		"LAB="+strings.TrimSuffix(a.lab.hosts[0], "0"))
	c := newCrew(1, cancel)
	c.start(cmd)
	return c.wait(sizes)
}

// hostsRun measures the parts of the report with several hosts.
type hostsRun struct {
	rig    rig
	rounds int
	study  *study
	log    io.Writer
}

// carryOut measures the parts that the argument only names, or all parts if that list is empty. If a part cannot be measured, it
// records the reason.
func (h hostsRun) carryOut(ctx context.Context, only []string) error {
	for _, part := range []struct {
		name    string
		measure func(context.Context) error
	}{{partHosts, h.four}, {partFree, h.free}, {partTwo, h.two}, {partDelay, h.delay}} {
		if len(only) > 0 && !slices.Contains(only, part.name) {
			continue
		}
		h.study.drop(part.name)
		if err := part.measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// note records the results of a side and logs them. If failed is not nil, it records this error as
// the reason for missing results.
func (h hostsRun) note(part, side string, round int, results []result, failed error) error {
	name := part + ", " + side
	if failed != nil {
		h.study.Missing[name] = failed.Error()
		_, err := fmt.Fprintf(h.log, "%s: %v\n", name, failed)
		return err
	}
	delete(h.study.Missing, name)
	for _, r := range results {
		fmt.Fprintf(h.log, "round %d  %s  n = %d  %s: %s %s\n", round+1, name, r.N, size(r.Bytes), micros(r.P50), r.Algorithm)
	}
	return h.study.add(part, side, round, results)
}

// hostsTurn is a side to measure on the hosts of a lab, with its sizes.
type hostsTurn struct {
	side    string
	measure func(context.Context, []int) ([]result, error)
	sizes   []int
}

// four measures elrun and Gloo alternately on four hosts.
func (h hostsRun) four(ctx context.Context) error {
	l, err := newLab(ctx, 4, "1gbit")
	if err != nil {
		return err
	}
	defer l.remove()
	sealed, plain := h.pair(l)
	all := []int{4, kib, 64 * kib, mib, 16 * mib, 64 * mib}
	return h.turns(ctx, partHosts, []hostsTurn{{elrunSealed, sealed.elrun, all}, {glooTCP, sealed.gloo, all}, {elrunPlain, plain.elrun, []int{kib, 64 * mib}}})
}

// free measures all sides alternately on four hosts whose links are as fast as the cores.
func (h hostsRun) free(ctx context.Context) error {
	l, err := newLab(ctx, 4, "")
	if err != nil {
		return err
	}
	defer l.remove()
	sealed, plain := h.pair(l)
	long := []int{64 * mib}
	return h.turns(ctx, partFree, []hostsTurn{{elrunPlain, plain.elrun, long}, {glooTCP, plain.gloo, long}, {elrunSealed, sealed.elrun, long}, {mpiTCP, plain.openmpi, long}})
}

// pair returns elrun with one rank on each host, with and without encryption.
func (h hostsRun) pair(l *lab) (sealed, plain across) {
	return across{lab: l, rig: h.rig, each: 1, flags: []string{"--encrypt", "always"}},
		across{lab: l, rig: h.rig, each: 1, flags: []string{"--encrypt", "never"}}
}

// turns measures the sides alternately. Each round begins with another side.
func (h hostsRun) turns(ctx context.Context, part string, all []hostsTurn) error {
	for round := range h.rounds {
		for i := range all {
			turn := all[(i+round)%len(all)]
			results, failed := turn.measure(ctx, turn.sizes)
			if err := errors.Join(ctx.Err(), h.note(part, turn.side, round, results, failed)); err != nil {
				return err
			}
		}
	}
	return nil
}

// two measures how many bytes two hosts with two ranks each send to each other.
func (h hostsRun) two(ctx context.Context) error {
	l, err := newLab(ctx, 2, "1gbit")
	if err != nil {
		return err
	}
	defer l.remove()
	for round := range h.rounds {
		results, failed := h.sent(ctx, l, 16*mib)
		if err := errors.Join(ctx.Err(), h.note(partTwo, elrunSealed, round, results, failed)); err != nil {
			return err
		}
	}
	return nil
}

// sent measures how many bytes the host that sends most sends in a call. It subtracts the bytes of
// two runs that differ only in the number of calls, so that other traffic does not count.
func (h hostsRun) sent(ctx context.Context, l *lab, bytes int) ([]result, error) {
	const few, many = 3, 13
	var most float64
	var results []result
	var count [2][]int64 // by host
	for i, iters := range []int{few, many} {
		before, err := l.sent(ctx)
		if err != nil {
			return nil, err
		}
		h.rig.iters = iters
		if results, err = (across{lab: l, rig: h.rig, each: 2}).elrun(ctx, []int{bytes}); err != nil {
			return nil, err
		}
		if count[i], err = l.sent(ctx); err != nil {
			return nil, err
		}
		for host := range count[i] {
			count[i][host] -= before[host]
		}
	}
	for host := range l.hosts {
		most = max(most, float64(count[1][host]-count[0][host])/(many-few))
	}
	for i := range results {
		results[i].P50 = most
	}
	return results, nil
}

// delay measures two hosts on a path with a delay.
func (h hostsRun) delay(ctx context.Context) error {
	relay, err := newRelay(ctx)
	if err != nil {
		return err
	}
	defer relay.close()
	h.rig.iters = 3
	results, failed := across{lab: relay.lab, rig: h.rig, each: 1}.elrun(ctx, []int{delayBytes})
	return errors.Join(ctx.Err(), h.note(partDelay, elrunSealed, 0, results, failed))
}
