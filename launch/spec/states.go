package spec

// The states of a member.
const (
	StateUnknown = "unknown"
	StateJoining = "joining"
	StateRunning = "running"
	StateWaiting = "waiting"
	StateParked  = "parked"
	StateLeft    = "left"
	StateDone    = "done"
)
