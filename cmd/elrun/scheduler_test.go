package main

import (
	"fmt"
	"strings"
	"testing"
)

// If the user names no hosts, elrun uses the hosts of the batch job.
func TestPlace(t *testing.T) {
	nodefile := written(t, "h1\nh1\nh2\n")
	for _, c := range []struct {
		env   []string
		flags func(c *runCommand)
		want  string
	}{
		{nil, nil, "[] false 0"},
		{[]string{"SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_TASKS_PER_NODE=2(x2)"}, nil, "[{n1 2 } {n2 2 }] true 0"},
		{[]string{"SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n[1-2]"}, func(c *runCommand) { c.Peers = 3 }, "[] false 3"},
		{[]string{"SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n[1-2]"}, func(c *runCommand) { c.Scheduler = "none" }, "[] false 0"},
		{[]string{"SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n[1-2]"}, func(c *runCommand) { h := "x"; c.Hosts = &h }, "[{x 1 }] false 0"},
		{[]string{"SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n1", "SLURM_TASKS_PER_NODE=4", "SLURMD_NODENAME=n1"}, nil, "[] false 4"},
		{[]string{"PBS_NODEFILE=" + nodefile}, nil, "[{h1 2 } {h2 1 }] false 0"},
		{[]string{"LSB_MCPU_HOSTS=h1 2 h2 2"}, nil, "[{h1 2 } {h2 2 }] false 0"},
		{[]string{"PBS_NODEFILE=/no/such/file"}, nil, "--scheduler none"},
	} {
		t.Run(strings.Join(c.env, " "), func(t *testing.T) {
			for _, name := range []string{"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURMD_NODENAME", "PBS_NODEFILE", "LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE"} {
				t.Setenv(name, "")
			}
			for _, v := range c.env {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			command := &runCommand{}
			if c.flags != nil {
				c.flags(command)
			}
			hosts, srun, err := command.chooseHosts(silent(t), &command.sshFlags, &command.Peers)
			if got := fmt.Sprint(hosts, srun, command.Peers); got != c.want && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s, error %v, want %s", got, err, c.want)
			}
		})
	}
}

// A task of Slurm gets its rank from the environment.
func TestTask(t *testing.T) {
	for v, value := range map[string]string{"SLURM_CLUSTER_NAME": "lab", "SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1",
		"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2", "SLURM_LOCALID": "0", "SLURMD_NODENAME": "n2", "SLURM_RESTART_COUNT": ""} {
		t.Setenv(v, value)
	}
	f := &schedulerFlags{}
	if task, err := f.task(); err != nil || task == nil || task.Rank != 1 || task.Label() != "n2" {
		t.Errorf("task %+v, error %v", task, err)
	}
	f.Scheduler = "none"
	if task, err := f.task(); err != nil || task != nil {
		t.Errorf("with --scheduler none: task %+v, error %v", task, err)
	}
	t.Setenv("SLURM_PROCID", "two")
	if _, err := (&schedulerFlags{}).task(); err == nil || !strings.Contains(err.Error(), "SLURM_PROCID") {
		t.Errorf("error %v", err)
	}
}
