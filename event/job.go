package event

import "time"

// Events about a job and its processes, of which most come from launchers. An event of a launcher about one
// of its peers has the peer in the header, and one about the job has the Index NoPeer.

// Job describes a job. Each launcher emits one at its start, with what it knows; the members that have
// rank 0 or are the first of their launcher emit one with the part of package trainer.
type Job struct {
	Job      string   `json:"job,omitempty"`
	Elrun    string   `json:"elrun,omitempty"`    // version
	Launcher string   `json:"launcher,omitempty"` // name of the launcher that emits the event, as in Member
	Program  string   `json:"program,omitempty"`
	Args     []string `json:"args,omitempty"` // of the program; not cut, also if they have passwords
	Log      string   `json:"log,omitempty"`  // path of the event log of this launcher, on its host
	// Settings has the settings in which all members must agree, by name.
	Settings    map[string]string `json:"settings,omitempty"`
	Samples     int               `json:"samples,omitempty"` // of one pass over the data
	Steps       int64             `json:"steps,omitempty"`   // of the whole job
	Passes      int               `json:"passes,omitempty"`
	GlobalBatch int               `json:"global_batch,omitempty"` // samples of a step
	Microbatch  int               `json:"microbatch,omitempty"`   // samples of a microbatch
	Exact       bool              `json:"exact,omitempty"`
	Params      int               `json:"params,omitempty"`  // elements of all parameters
	Resumed     int64             `json:"resumed,omitempty"` // step of the checkpoint from which the job goes on
}

// Name returns "job".
func (Job) Name() string { return "job" }

// Member describes a peer, so that readers of a log know what its short ID means. A launcher emits it for
// each of its peers when the peer says hello, and a peer for each member of a view that its launcher has
// not started, with what a view says of a member.
type Member struct {
	Who      string `json:"who"`       // short ID of the member
	WhoIndex int    `json:"who_index"` // its index among the peers of its launcher
	Host     string `json:"host"`      // name of its host
	Machine  string `json:"machine,omitempty"`
	Site     string `json:"site,omitempty"`
	Launcher string `json:"launcher,omitempty"` // equal for all peers of one launcher
	PID      int    `json:"pid,omitempty"`
	// Began is the start of its process, on the clock of the emitter; zero if unknown.
	Began time.Time `json:"began,omitzero"`
	OS    string    `json:"os,omitempty"`
	Arch  string    `json:"arch,omitempty"`
	Cores int       `json:"cores,omitempty"` // processors of the host that its processes may use
	Elrun string    `json:"elrun,omitempty"` // version of elrun
}

// Name returns "member".
func (Member) Name() string { return "member" }

// Exit reports that the process of the peer of the header has ended.
type Exit struct {
	PID    int `json:"pid"`
	Status int `json:"status"`           // -1 if a signal ended the process, or its host is lost
	Signal int `json:"signal,omitempty"` // number of the signal that ended it
	// Lost is set if the connection to the host broke, so that the process may run on.
	Lost   bool    `json:"lost,omitempty"`
	Asked  bool    `json:"asked,omitempty"`   // the peer was asked to leave
	Says   string  `json:"says,omitempty"`    // what the program has said of its failure
	RanS   float64 `json:"ran_s"`             // seconds from its start to its end
	CPUS   float64 `json:"cpu_s,omitempty"`   // seconds of processor time of the process, if known
	MaxRSS int64   `json:"max_rss,omitempty"` // bytes of memory at most, if known
}

// Name returns "exit".
func (Exit) Name() string { return "exit" }

// Note is a line that the launcher prints for people.
type Note struct {
	Text string `json:"text"`
}

// Name returns "note".
func (Note) Name() string { return "note" }

// Notice reports that a launcher was told to end its job, as by a notice that its host will be taken away,
// and asks its peers to leave.
type Notice struct {
	Cause string `json:"cause"` // who has said so, in words
}

// Name returns "notice".
func (Notice) Name() string { return "notice" }
