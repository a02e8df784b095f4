package event

// Eval reports an evaluation of the model after the step Event.Step. The peer with rank 0 emits it.
type Eval struct {
	Set      string   `json:"set,omitempty"` // which data, as the program names them
	Samples  int      `json:"samples,omitempty"`
	Accuracy *float64 `json:"accuracy,omitempty"`
	Loss     *float64 `json:"loss,omitempty"` // mean over the samples
	MS       float64  `json:"ms"`             // duration
	Best     bool     `json:"best,omitempty"` // it is the best so far, by the rule of the program
}

// Name returns "eval".
func (Eval) Name() string { return "eval" }

// Usage reports what the process of the emitter uses. It is emitted every few seconds if somebody reads it.
// Counts are totals since the start of the process.
type Usage struct {
	CPUS       float64          `json:"cpu_s"`              // seconds of processor time
	RSS        int64            `json:"rss"`                // bytes of memory
	Sent       map[string]int64 `json:"sent,omitempty"`     // bytes to other members, by kind of path (Path.Kind)
	Received   map[string]int64 `json:"received,omitempty"` // bytes from other members
	GCMS       float64          `json:"gc_ms,omitempty"`    // pauses of the Go runtime
	Goroutines int              `json:"goroutines,omitempty"`
}

// Name returns "usage".
func (Usage) Name() string { return "usage" }

// Link reports the measured cost of the link between two members. Its receiver emits it when the cost on
// which all members agree has changed.
type Link struct {
	From string  `json:"from"` // short IDs
	To   string  `json:"to"`
	MBs  float64 `json:"mb_s,omitempty"` // MB/s
	RTT  float64 `json:"rtt_ms,omitempty"`
	Kind string  `json:"kind,omitempty"` // of the path, as in Path
	Addr string  `json:"addr,omitempty"`
}

// Name returns "link".
func (Link) Name() string { return "link" }

// Clock reports how far the clock of another member's host is ahead of that of the emitter's host.
type Clock struct {
	Who      string  `json:"who"`
	OffsetMS float64 `json:"offset_ms"`
	ErrorMS  float64 `json:"error_ms"` // half the round trip of the best exchange
}

// Name returns "clock".
func (Clock) Name() string { return "clock" }
