package trainer

import "fmt"

// Hooks are functions of the program that a training calls. Each may be nil, and may differ between
// peers.
type Hooks struct {
	// OnBegin is called before this peer computes its part of a step, and again for another try at
	// the step. Gradient may have begun earlier (Model.Waits).
	OnBegin func(step int64)
	// OnTrial is called before this peer computes microbatches of a step as a speed trial before it
	// joins. Their results are discarded.
	OnTrial func(step int64)
	// OnStep is called in order for every step that this peer has contributed to, when the step is
	// stable. The parameters may already have changed in the next step.
	OnStep func(StepReport)
	// Done is called with the result when the job is finished at this peer.
	Done func(Result)
	// Log is called with a line of text for each warning: a problem that does not end the training,
	// such as a damaged checkpoint that was skipped. It may be called from several goroutines.
	Log func(line string)
}

// log formats a line for Log.
func (h Hooks) log(format string, args ...any) {
	if h.Log != nil {
		h.Log(fmt.Sprintf(format, args...))
	}
}
