package main

import (
	"context"
	"fmt"
	"os"

	"github.com/elrun/elrun/internal/scheduler"
	"github.com/elrun/elrun/launch"
)

// schedulerFlags configure whether elrun takes its hosts from the batch job (Slurm, PBS, LSF) in
// which it runs.
type schedulerFlags struct {
	Scheduler string `enum:"auto,none" default:"auto" help:"Take hosts and places from the batch system (Slurm, PBS, LSF) in whose job this elrun runs: auto, or none."`
}

// schedulerEnv gives package scheduler the environment variables and files of this process. Its
// tests pass a made-up environment instead.
func schedulerEnv() scheduler.Environment {
	return scheduler.Environment{Get: os.Getenv, Read: func(path string) (string, error) {
		b, err := os.ReadFile(path)
		return string(b), err
	}}
}

// task returns the task of this launcher in a Slurm step of several tasks; nil outside of such a
// step.
func (s *schedulerFlags) task() (*scheduler.Task, error) {
	if s.Scheduler == "none" {
		return nil, nil
	}
	task, ok, err := scheduler.FindTask(schedulerEnv())
	if err != nil || !ok {
		return nil, schedulerError(err)
	}
	return &task, nil
}

// allocation returns the hosts of the batch job in which this launcher runs; nil outside of a batch
// job.
func (s *schedulerFlags) allocation() (*scheduler.Allocation, error) {
	if s.Scheduler == "none" {
		return nil, nil
	}
	a, err := scheduler.Find(schedulerEnv())
	return a, schedulerError(err)
}

// schedulerError adds advice to an error in the data of a batch system. Users cannot correct such
// data, as it comes from the configuration of the cluster.
func schedulerError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; --scheduler none runs the peers on this host", err)
}

// chooseHosts chooses the hosts of the peers: the named hosts, or the hosts of the batch job in
// which this launcher runs, unless the user gives a number of peers. srun reports whether srun
// reaches the hosts.
func (s *schedulerFlags) chooseHosts(t *terminal, named *sshFlags, peers *peerCount) (hosts []launch.Host, srun bool, err error) {
	// The user's choice takes precedence over the allocation of the batch system.
	if hosts, err = named.hosts(); err != nil || len(hosts) > 0 || *peers > 0 {
		return hosts, false, err
	}
	a, err := s.allocation()
	if a != nil && a.Groups > 1 {
		fmt.Fprintf(t.stderr, "elrun: %s has %d groups of hosts (a heterogeneous job); these peers run in the first: srun --het-group=1 elrun join starts more in the second\n", a.From, a.Groups)
	}
	switch {
	case err != nil || a == nil:
		return nil, false, err
	case a.Here:
		*peers = peerCount(a.Hosts[0].Slots)
		fmt.Fprintf(t.stderr, "elrun: %s has %d slots, all on this host: starting a peer for each; -n N starts another number\n", a.From, a.Hosts[0].Slots)
		return nil, false, nil
	}
	for _, h := range a.Hosts {
		hosts = append(hosts, launch.Host{Name: h.Name, Slots: h.Slots})
	}
	by := "ssh"
	if a.Slurm {
		by = "srun"
	}
	fmt.Fprintf(t.stderr, "elrun: %s has %d hosts, reached by %s: %v\n", a.From, len(hosts), by, a)
	return hosts, a.Slurm, nil
}

// inTask runs the part of the job that belongs to one task of a Slurm step. Task 0 starts the
// job. The other tasks join it with the ticket that task 0 writes to a file.
func (r *runCommand) inTask(ctx context.Context, t *terminal, task *scheduler.Task, change func(*launch.Options)) error {
	run := func(also func(*launch.Options)) error {
		return r.run(ctx, t, func(o *launch.Options) {
			change(o)
			o.Peers, o.Output.Label, o.Output.Shared = max(1, int(r.Peers)), task.Label(), true // without -n one peer for each task
			also(o)
		})
	}
	rendezvous := newTicketFile(r.Rendezvous, task)
	if task.Rank == 0 {
		return rendezvous.startJob(ctx, t, r.jobFlags, func(job string) error {
			return run(func(o *launch.Options) { o.Job = job })
		})
	}
	return rendezvous.join(ctx, t, r.RejoinTimeout, func(ticket string) error {
		return run(func(o *launch.Options) { o.Job, o.Join, o.Ticket = "", true, ticket })
	})
}
