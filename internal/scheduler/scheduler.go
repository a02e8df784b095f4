// Package scheduler finds the resources that a batch system (Slurm, PBS, LSF) has given to a job:
// the hosts with their slots, and the rank of this process among the tasks that srun has started.
// The batch system describes both in environment variables and files. This package does no I/O: the
// caller passes functions that read the environment and files.
package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Environment gives access to the variables and files that the package reads.
type Environment struct {
	Get  func(name string) string          // returns "" for an unset variable
	Read func(path string) (string, error) // returns the content of a file
}

// Host is a host of an allocation.
type Host struct {
	// Name is the name of the host, as the batch system gives it.
	Name  string
	Slots int // number of processes that the job may run on the host
}

// Allocation is the set of hosts that a batch system has given to a job.
type Allocation struct {
	From  string // the batch system's name of the job, as in "Slurm job 12"
	Slurm bool   // srun can start processes on the hosts
	Hosts []Host
	// Here reports that the job has a single host, and this process runs on it.
	Here bool
	// Groups is the number of groups of a heterogeneous Slurm job, of which Hosts are the first; 0 for
	// other jobs.
	Groups int

	at map[string]int // index in Hosts, by name
}

// Task is the position of this process in a Slurm step with more than one task.
type Task struct {
	Step    string // cluster, job, step and number of restarts, as in lab-12.0.1; unique to a group of tasks
	Rank    int    // 0 to Tasks-1
	Tasks   int
	Host    string // name of this task's host
	Local   int    // index among the tasks of its host
	Crowded bool   // some hosts have several tasks
}

// Label names the task in messages: its host, followed by its index on the host if some hosts have
// several tasks.
func (t Task) Label() string {
	if t.Crowded {
		return fmt.Sprintf("%s:%d", t.Host, t.Local)
	}
	return t.Host
}

// FindTask returns the position of this process in its Slurm step. It returns false if the process
// is not in a step, or is the only task of the step.
func FindTask(env Environment) (Task, bool, error) {
	if !inStep(env) || env.Get("SLURM_STEP_NUM_TASKS") == "1" {
		return Task{}, false, nil
	}
	t := Task{Host: env.Get("SLURMD_NODENAME")}
	nodes := 0
	for name, to := range map[string]*int{"SLURM_PROCID": &t.Rank, "SLURM_STEP_NUM_TASKS": &t.Tasks, "SLURM_LOCALID": &t.Local, "SLURM_STEP_NUM_NODES": &nodes} {
		n, err := parseNumber(env.Get(name))
		if err != nil {
			return Task{}, false, fmt.Errorf("%s=%.40q: want a number, as srun sets it", name, env.Get(name))
		}
		*to = n
	}
	// More tasks than nodes: some node has several.
	t.Crowded = t.Tasks > nodes
	t.Step = fmt.Sprintf("%s-%s.%s.%s", cmp.Or(env.Get("SLURM_CLUSTER_NAME"), "cluster"), env.Get("SLURM_JOB_ID"), env.Get("SLURM_STEP_ID"), cmp.Or(env.Get("SLURM_RESTART_COUNT"), "0"))
	if t.Rank >= t.Tasks && env.Get("SLURM_HET_SIZE") != "" {
		return Task{}, false, errors.New("the step has several groups of a heterogeneous Slurm job: start a step for each, the later ones by elrun join")
	}
	if t.Rank >= t.Tasks {
		return Task{}, false, fmt.Errorf("SLURM_PROCID=%d, want less than the %d tasks of the step", t.Rank, t.Tasks)
	}
	for _, name := range []string{t.Step, t.Host} { // they are used in file names and in lines of output
		if err := checkName(name); err != nil {
			return Task{}, false, fmt.Errorf("environment of Slurm: %w", err)
		}
	}
	return t, true, nil
}

// inStep reports whether this process is a task of a step that srun has started. Scripts of sbatch
// and shells of salloc run in steps with reserved numbers, or in no step.
func inStep(env Environment) bool {
	// Slurm numbers its own steps, such as the batch script, from here up (SLURM_MAX_NORMAL_STEP_ID
	// in slurm.h).
	const reserved = 0xfffffff0
	step, err := strconv.ParseUint(env.Get("SLURM_STEP_ID"), 10, 32)
	return err == nil && step < reserved && env.Get("SLURM_JOB_ID") != "" && env.Get("SLURM_PROCID") != ""
}

// Find returns the hosts of the job in which this process runs. It returns nil if there is no job,
// if the process is a task of a Slurm step, or if the job has a single slot on this host.
func Find(env Environment) (*Allocation, error) {
	var a *Allocation
	var err error
	switch {
	case inStep(env):
		return nil, nil
	case env.Get("SLURM_JOB_ID") != "" && env.Get("SLURM_JOB_NODELIST") != "":
		a, err = slurm(env)
	case env.Get("PBS_NODEFILE") != "":
		a, err = slotFile(env, "PBS job "+env.Get("PBS_JOBID"), env.Get("PBS_NODEFILE"))
	case env.Get("LSB_MCPU_HOSTS") != "":
		a, err = lsf(env)
	case env.Get("LSB_DJOB_HOSTFILE") != "":
		a, err = slotFile(env, "LSF job "+env.Get("LSB_JOBID"), env.Get("LSB_DJOB_HOSTFILE"))
	}
	// A job with a single slot on this host needs no other host: elrun runs as it does without a
	// batch system.
	if err != nil || a == nil || a.Here && a.Hosts[0].Slots == 1 && a.Groups < 2 {
		return nil, err
	}
	return a, nil
}

// slurm reads the hosts of a Slurm job, with one slot for each task.
func slurm(env Environment) (*Allocation, error) {
	names, err := ExpandHosts(env.Get("SLURM_JOB_NODELIST"))
	if err != nil {
		return nil, fmt.Errorf("SLURM_JOB_NODELIST: %w", err)
	}
	// Without a number of tasks each host has one slot.
	list := env.Get("SLURM_TASKS_PER_NODE")
	if list == "" {
		list = fmt.Sprintf("1(x%d)", len(names))
	}
	counts, err := ExpandCounts(list, len(names))
	if err != nil {
		return nil, fmt.Errorf("SLURM_TASKS_PER_NODE: %w", err)
	}
	a := &Allocation{From: "Slurm job " + env.Get("SLURM_JOB_ID"), Slurm: true}
	a.Groups, _ = strconv.Atoi(env.Get("SLURM_HET_SIZE")) // unset in most jobs
	for i, n := range names {
		a.add(n, counts[i])
	}
	a, err = a.check()
	if err == nil {
		// The one host of the allocation need not be this one: the shell of salloc may run outside the
		// allocation.
		a.Here = a.Here && names[0] == env.Get("SLURMD_NODENAME")
	}
	return a, err
}

// slotFile reads a file that has one line with the host's name for each slot. The job's script
// runs on the first host.
func slotFile(env Environment, from, path string) (*Allocation, error) {
	text, err := env.Read(path)
	if err != nil {
		return nil, fmt.Errorf("read the hosts of %s: %w", from, err)
	}
	a := &Allocation{From: from}
	for line := range strings.Lines(text) {
		if name := strings.TrimSpace(line); name != "" {
			a.add(name, 1)
		}
	}
	return a.check()
}

// lsf reads the hosts of an LSF job; each name is followed by its number of slots.
func lsf(env Environment) (*Allocation, error) {
	a := &Allocation{From: "LSF job " + env.Get("LSB_JOBID")}
	words := strings.Fields(env.Get("LSB_MCPU_HOSTS"))
	for i := 0; i+1 < len(words); i += 2 {
		n, err := parseNumber(words[i+1])
		if err != nil {
			return nil, fmt.Errorf("%s: LSB_MCPU_HOSTS: %w", a.From, err)
		}
		a.add(words[i], n)
	}
	if len(words)%2 != 0 {
		return nil, fmt.Errorf("%s: LSB_MCPU_HOSTS: want pairs of a host and its slots", a.From)
	}
	return a.check()
}

// add adds a host, or adds slots to a host that is present. Hosts keep the order in which the batch
// system lists them, because most systems run the job's script on the first host.
func (a *Allocation) add(name string, slots int) {
	if a.at == nil {
		a.at = make(map[string]int)
	}
	i, there := a.at[name]
	if !there {
		i = len(a.Hosts)
		a.at[name] = i
		a.Hosts = append(a.Hosts, Host{Name: name})
	}
	a.Hosts[i].Slots += min(max(1, slots), maxSlots+1) // bounded, so that sums do not overflow; check refuses the result
}

// maxSlots bounds the slots of a host. It protects against a wrong number in the environment, which
// would start as many processes.
const maxSlots = 1 << 12

// check returns the allocation if it is valid, and sets Here for a job with a single host: most
// batch systems run the job's script on the first host.
func (a *Allocation) check() (*Allocation, error) {
	for _, h := range a.Hosts {
		if err := checkName(h.Name); err != nil {
			return nil, fmt.Errorf("%s: %w", a.From, err)
		}
		if h.Slots > maxSlots {
			return nil, fmt.Errorf("%s: %d slots on %s, want at most %d", a.From, h.Slots, h.Name, maxSlots)
		}
	}
	switch {
	case len(a.Hosts) == 0:
		return nil, fmt.Errorf("%s has no hosts", a.From)
	case len(a.Hosts) > maxHosts:
		return nil, fmt.Errorf("%s: %w", a.From, errMany)
	}
	a.Here = len(a.Hosts) == 1
	return a, nil
}

// String returns the first hosts in the syntax of the flag -H.
func (a *Allocation) String() string {
	const shown = 6
	var words []string
	for _, h := range a.Hosts[:min(shown, len(a.Hosts))] {
		words = append(words, fmt.Sprintf("%s:%d", h.Name, h.Slots))
	}
	if len(a.Hosts) > shown {
		words = append(words, "...")
	}
	return strings.Join(words, ",")
}
