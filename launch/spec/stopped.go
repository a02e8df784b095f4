package spec

import (
	"time"
)

// Stopped describes the effect of Job.Stop.
type Stopped struct {
	Job   string
	Peers int           // number of peers that were found and asked to end
	Took  time.Duration // from the first request to the end of the last peer
}
