package launch

import (
	"context"
	"iter"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/elastic/wish"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/doctor"
)

// Errors of Find and of the methods of a Job. Compare them with errors.Is.
var (
	// ErrNoJob reports that no job has the name, that there is no job at all, or that the job has
	// ended.
	ErrNoJob = ctl.ErrNoJob
	// ErrWhichJob reports that a name fits several jobs.
	ErrWhichJob = ctl.ErrWhichJob
)

// Job is a job of this user that has peers, or an elrun that starts some, on this host. Its methods
// send requests to the control sockets of these peers. No launcher needs to run, except for Scale. A Job is only a name and
// holds no resources, so it needs no Close. Its methods are safe for concurrent use; after the end
// of the job they return ErrNoJob.
type Job struct{ at *ctl.Job }

// Find returns the job with a name, or the only job if name is empty. The beginning of a name is
// enough if it is the beginning of exactly one job's name and no job's full name. The errors are
// ErrNoJob and ErrWhichJob. Find sends no request to a peer, so that it also finds a job whose
// peers do not answer.
func Find(ctx context.Context, name string) (*Job, error) {
	j, err := ctl.Find(ctx, name)
	if err != nil {
		return nil, err
	}
	return &Job{j}, nil
}

// Jobs returns the status of every job of this user that has peers on this host, sorted by name.
// It asks all peers at once; no launcher needs to run. Peers that do not answer in time are left
// out.
func Jobs(ctx context.Context) ([]Status, error) { return ctl.Jobs(ctx) }

// JobNames returns the names of the jobs of this user that have peers, or an elrun that starts some, on this host. It sends no request, so
// that it takes no time, and names jobs whose peers do not answer.
func JobNames() ([]string, error) { return ctl.Names() }

// LastStatus returns the last status of a job of this user that ended within the last 24 hours;
// Status.Ended describes the end. The beginning of a name is enough if it is the beginning of
// exactly one job's name and no job's full name. The errors are ErrNoJob and ErrWhichJob.
func LastStatus(ctx context.Context, name string) (Status, error) { return ctl.LastStatus(ctx, name) }

// Name returns the full name of the job.
func (j *Job) Name() string { return j.at.Name() }

// Status returns the state of the job. It combines the reports of the peers that answer within 2 s.
func (j *Job) Status(ctx context.Context) (Status, error) { return j.at.Status(ctx) }

// Paths is Status with the paths of the data from each peer on this host to the other peers.
func (j *Job) Paths(ctx context.Context) (Status, error) { return j.at.Paths(ctx) }

// Snapshot returns what is known of the job: peers, views, series of figures, and what the time of the peers was used
// for. The elrun processes of the job on this host tell it; they ask those of the other members, and leave out
// what these do not answer within 1 s. It is an error if no elrun of the job runs here.
func (j *Job) Snapshot(ctx context.Context) (timeline.Snapshot, error) { return j.at.Snapshot(ctx) }

// Watch returns a sequence of snapshots, one a second. It ends with an error when ctx ends, or the last elrun of the job
// on this host does. While it runs, the figures of other hosts are at most about two seconds old. A job that
// nobody watches collects none. The caller must not change a snapshot, as the next one shares its memory.
func (j *Job) Watch(ctx context.Context) iter.Seq2[timeline.Snapshot, error] { return j.at.Watch(ctx) }

// Events returns a sequence of the events of the job from now on: those of the peers of the elruns on this host, in batches, each in
// the order of the times. The first events tell what is known already: of the job, of its peers and of their view. It ends
// with an error when ctx ends, or the last elrun of the job on this host does. If the caller is too slow, events are left
// out, and an event Dropped tells how many. A job whose events nobody wants keeps none.
func (j *Job) Events(ctx context.Context) iter.Seq2[event.Event, error] { return j.at.Events(ctx) }

// Record asks the peers of this host, and those of its elrun processes, for the records of their last 1,024 calls and for
// their goroutines, and writes them into a directory, which is made if necessary and must have no records yet. For
// a peer that does not answer within 2 s, it writes what the others know of it. A peer answers from a goroutine that needs
// neither the program nor a call. The Finding says which peer holds the others up, as ReadRecords would. The reason is for
// people.
func (j *Job) Record(ctx context.Context, dir, reason string) (flight.Finding, error) {
	return doctor.Record(ctx, j.at, dir, reason)
}

// ReadRecords reads the directories that Job.Record has written, one of each host of a job, and says which peer holds the others
// up: the first one that is missing or different in the calls of all peers, see flight.Judge.
func ReadRecords(dirs ...string) (flight.Finding, error) { return doctor.ReadRecords(dirs...) }

// Scale asks the elrun process that started the job's peers on this host to change their number to
// n: it starts peers or asks some to leave. It returns a description of the action for people. If
// several elrun processes have peers in the job, launcher chooses one of them by its process ID;
// otherwise launcher is 0.
func (j *Job) Scale(ctx context.Context, n, launcher int) (string, error) {
	return j.at.Scale(ctx, n, launcher)
}

// ScaleHost is Scale for one host of a job that was started with Remote.Hosts: it changes the
// number of peers there to h.Slots, which may be 0. A new host is connected in the same way as the
// hosts of Remote.Hosts.
func (j *Job) ScaleHost(ctx context.Context, h Host, launcher int) (string, error) {
	return j.at.ScaleHost(ctx, h, launcher)
}

// Ticket returns a new ticket with a validity of 1 s to 10 years. It opens the job: from then on
// its peers listen on the network, except for peers with Listen set to local.
func (j *Job) Ticket(ctx context.Context, valid time.Duration) (Ticket, error) {
	return j.Invite(ctx, Invitation{Valid: valid})
}

// Invite is Ticket with a limit on the number of peers.
func (j *Job) Invite(ctx context.Context, i Invitation) (Ticket, error) { return j.at.Invite(ctx, i) }

// Refresh returns a ticket of the job with the addresses of the present members. Validity and
// number of peers stay the same.
func (j *Job) Refresh(ctx context.Context, ticket string) (Ticket, error) {
	return j.at.Refresh(ctx, ticket)
}

// Revoke revokes the ticket whose text or ID is ticket, or all tickets of the job if ticket is "".
// A revoked ticket admits nobody. Peers that have joined by the ticket stay. Revoke returns a
// description of the effect for people.
func (j *Job) Revoke(ctx context.Context, ticket string) (string, error) {
	return j.at.Revoke(ctx, ticket)
}

// Kick puts a peer out of the job. The peer is named by its ID, as Status shows it, or by its
// index if the index is unique. Neither the peer nor any holder of its ticket is admitted again.
// Kick returns a description of the effect for people.
func (j *Job) Kick(ctx context.Context, peer string) (string, error) { return j.at.Kick(ctx, peer) }

// Checkpoint asks the job to write a checkpoint at its next boundary between two steps, and waits until it is written. The peer of
// rank 0 writes it; if that peer dies before, the next one does. Those who ask at the same time get the same checkpoint. With wait
// false Checkpoint returns as soon as that peer has the wish, with an empty Saved.Path unless the checkpoint is written already. An
// error says why there is no checkpoint: the program has no folder for it, the write failed, the job has ended. At the end of
// ctx the wish stands.
func (j *Job) Checkpoint(ctx context.Context, wait bool) (wish.Saved, error) {
	return j.at.Checkpoint(ctx, wait)
}

// Stop ends the job on this host. It asks the elrun processes that started the job's peers here:
// each sends SIGTERM to all its peers, also to those that have not called Init or are stopped, kills
// those that run on after the grace period of the job (Options.Grace), and starts none any more.
// Peers whose elrun does not answer are asked themselves, and asked again after the grace period.
// Stop returns when the control sockets of all that were asked are gone. If some are left 5 s after
// the grace period, or at the end of ctx, it returns an error that names them. They have been asked
// to end.
//
// A launcher ends with status 0 then, or with that of a peer that failed before.
func (j *Job) Stop(ctx context.Context) (Stopped, error) { return j.at.Stop(ctx) }
