package event

// Eval reports an evaluation of the model after the step Event.Step. The peer with rank 0 emits it.
type Eval struct {
	Set      string   `json:"set,omitempty"` // test for trainer.Config.Evaluate; empty if unknown
	Samples  int      `json:"samples,omitempty"`
	Accuracy *float64 `json:"accuracy,omitempty"`
	Loss     *float64 `json:"loss,omitempty"` // mean over the samples
	MS       float64  `json:"ms"`             // duration
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

// Link reports the speed of the link from another member, on which all members have agreed by their measurements. Links are
// measured between three hosts or more. Its receiver emits it when the speed has changed by a fifth, at most every
// ten seconds.
type Link struct {
	From string  `json:"from"` // short ID of the sender
	MBs  float64 `json:"mb_s"` // in 10^6 bytes a second
}

// Name returns "link".
func (Link) Name() string { return "link" }

// Clock reports how far the clock of another member's host is ahead of that of the emitter's host. One peer of each elrun
// emits it at first sight, and then once a minute, for one member of each other host, if somebody logs the events.
type Clock struct {
	Who      string  `json:"who"` // short ID of the other member
	OffsetMS float64 `json:"offset_ms"`
	ErrorMS  float64 `json:"error_ms"` // the offset differs by at most as much: half the round trip of the best exchange
}

// Name returns "clock".
func (Clock) Name() string { return "clock" }
