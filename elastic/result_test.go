package elastic

import (
	"testing"

	"github.com/elrun/elrun/event"
)

// The result of the last Report counts, and only after a loop that came to its end.
func TestOutcome(t *testing.T) {
	var o outcome
	o.report(Result{Loss: new(0.5)})
	if done, _ := o.get(); done != nil {
		t.Errorf("before the end: %+v", done)
	}
	o.end(&event.Done{Steps: 7}, 3)
	o.report(Result{Accuracy: new(0.25)})
	done, epoch := o.get()
	if done == nil || done.Steps != 7 || epoch != 3 || done.Loss != nil || *done.Accuracy != 0.25 {
		t.Errorf("at the end, in epoch %d: %+v", epoch, done)
	}
	o.end(nil, 0)
	if done, _ := o.get(); done != nil {
		t.Errorf("in another loop: %+v", done)
	}
}

func TestOrders(t *testing.T) {
	o := newOrders()
	o.endWait(errRefused(1))
	o.endWait(errRefused(2))
	if err := <-o.reason; err != errRefused(2) {
		t.Errorf("got %v, want the latest", err)
	}
	o.leave()
	o.leave()
	<-o.leaves
}

// errRefused is an error with a number.
type errRefused int

func (errRefused) Error() string { return "refused" }
