package launch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/launch"
)

// A complete program: its peers sum their ranks. With "elrun -n 4 program" it has four peers;
// started alone it has one.
func ExampleInit() {
	ctx := context.Background()
	g, err := launch.Init(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	s, err := g.Sessions().Next(ctx, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	sum := []int64{int64(s.Comm.Rank())}
	if err := collective.AllReduce(ctx, s.Comm, sum, sum, collective.Sum[int64]); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Comm.Size(), "peers, sum of the ranks", sum[0])
	// Output: 1 peers, sum of the ranks 0
}

// A sidecar is a peer for the process that has started it, which computes the steps.
func ExampleInitFor() {
	ctx := context.Background()
	program, err := launch.NewSidecar(os.Getppid())
	if err != nil {
		fmt.Println(err)
		return
	}
	g, err := launch.InitFor(ctx, program)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	s, err := g.Sessions().Next(ctx, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	done := program.Computing() // until the program has answered
	fmt.Println(s.Comm.Size(), "peers")
	done()
	program.Close() // the program has its result, and may end
	// Output: 1 peers
}

// A program refuses to run alone.
func ExampleLaunched() {
	if !launch.Launched() {
		fmt.Println("start this program by elrun -n 4 PROGRAM")
	}
	// Output: start this program by elrun -n 4 PROGRAM
}

// A program starts peers of another program, as elrun does.
func ExampleRun() {
	result, err := launch.Run(context.Background(), launch.Options{
		Program: "echo", Args: []string{"hello"}, Peers: 2,
		Output: launch.Output{Plain: true, Stdout: os.Stdout, Stderr: os.Stderr},
	})
	fmt.Println(result.Status, len(result.Exits), err)
	// Output:
	// hello
	// hello
	// 0 2 <nil>
}

// A job is found by its name or the beginning of its name.
func ExampleFind() {
	ctx := context.Background()
	job, err := launch.Find(ctx, "sweep-of-tuesday")
	if errors.Is(err, launch.ErrNoJob) {
		fmt.Println("not running")
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := job.Status(ctx)
	fmt.Println(len(s.Members), "peers in step", s.Step, err)
	what, err := job.Scale(ctx, len(s.Members)+1, 0)
	fmt.Println(what, err)
	ticket, err := job.Ticket(ctx, time.Hour)
	fmt.Println("elrun join", ticket.Text, err)
	stopped, err := job.Stop(ctx)
	fmt.Println(stopped.Peers, "peers have ended", err)
	// Output: not running
}

// The last status of a job that has ended.
func ExampleLastStatus() {
	s, err := launch.LastStatus(context.Background(), "sweep-of-tuesday")
	if errors.Is(err, launch.ErrNoJob) {
		fmt.Println("none has ended within a day")
		return
	}
	fmt.Println(s.Ended.Outcome, s.Ended.Reason, err)
	// Output: none has ended within a day
}

// Whether a job runs on this host.
func ExampleJobNames() {
	names, err := launch.JobNames()
	fmt.Println(slices.Contains(names, "sweep-of-tuesday"), err)
	// Output: false <nil>
}

// The jobs of this user on this host.
func ExampleJobs() {
	all, err := launch.Jobs(context.Background())
	for _, s := range all {
		if s.Job == "sweep-of-tuesday" {
			fmt.Println(s.Job, len(s.Members), "peers in step", s.Step)
		}
	}
	fmt.Println(err)
	// Output: <nil>
}

// The findings about this host that keep jobs from running.
func ExampleDoctor() {
	checks := launch.Doctor(context.Background())
	for _, c := range checks {
		if c.Level == launch.Fail {
			fmt.Fprintln(os.Stderr, c, c.Advice)
		}
	}
	fmt.Println(len(checks) > 0)
	// Output: true
}

// Hosts with the number of peers on each.
func ExampleParseHosts() {
	hosts, err := launch.ParseHosts("node1:2,node2")
	fmt.Println(hosts[0].Name, hosts[0].Slots, hosts[1].Name, hosts[1].Slots, err)
	// Output: node1 2 node2 1 <nil>
}

// The same hosts, one on a line, with their sites. A host without a number gets one peer for each
// of its cores.
func ExampleReadHostfile() {
	hosts, err := launch.ReadHostfile(strings.NewReader("node1 slots=2 site=berlin\nnode2 site=paris\n"))
	fmt.Println(hosts, err)
	// Output: [{node1 2 berlin} {node2 0 paris}] <nil>
}

// The agent, which ssh starts on another host: it serves the launcher. Here the launcher closes the
// connection at once.
func ExampleServeHost() {
	var out strings.Builder
	err := launch.ServeHost(context.Background(), strings.NewReader(""), &out, nil)
	fmt.Println(err, out.Len() > 0) // the agent has reported that it is ready
	// Output: <nil> true
}

// The findings that keep this host from joining a job. Here nobody listens at the address.
func ExampleDoctorMember() {
	checks, err := launch.DoctorMember(context.Background(), "127.0.0.1:1")
	for _, c := range checks {
		fmt.Println(c.Level, c.Name)
	}
	fmt.Println(err)
	// Output:
	// fail 127.0.0.1:1
	// <nil>
}

// The findings that keep jobs from running on other hosts. Here the command that connects fails.
func ExampleDoctorHosts() {
	checks, err := launch.DoctorHosts(context.Background(), launch.Remote{
		Hosts: []launch.Host{{Name: "node1"}, {Name: "node2"}}, SSH: "false",
	})
	for _, c := range checks {
		fmt.Println(c.Level, c.Name)
	}
	fmt.Println(err)
	// Output:
	// fail node1
	// fail node2
	// <nil>
}

// A hook sends a message when a peer is lost or holds up the others.
func ExampleParseHook() {
	h, err := launch.ParseHook("lost,stall=mail -s training me@example.com")
	fmt.Println(h.Events, h.Command, err)
	// Output: [lost stall] mail -s training me@example.com <nil>
}

// A program that follows a job prints a line each second, until the job ends.
func ExampleJob_Watch() {
	ctx := context.Background()
	job, err := launch.Find(ctx, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	for s, err := range job.Watch(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("step %d of %d, %d peers: %s\n", s.Step, s.Of, len(s.Peers), s.Goodput.Line())
	}
}

// Records that Job.Record has written name the peer that holds the others up.
func ExampleReadRecords() {
	_, err := launch.ReadRecords("no-such-directory")
	fmt.Println(err)
	// Output: launch: read records: open no-such-directory: no such file or directory
}

// What would run where, without a connection.
func ExampleDryRun() {
	plans, err := launch.DryRun(context.Background(), launch.Options{Program: "./train", Peers: 3,
		Remote: launch.Remote{Hosts: []launch.Host{{Name: "a", Slots: 2}, {Name: "b", Slots: 2}}}})
	for _, p := range plans {
		fmt.Println(p.Host, p.Peers, p.Command[0], p.Program)
	}
	fmt.Println(err)
	// Output:
	// a 2 ssh [./train]
	// b 1 ssh [./train]
	// <nil>
}
