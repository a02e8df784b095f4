package collective

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// Every error of a call is ErrRevoked. A bug of one rank's program is ErrMistake at that rank and
// at all ranks that get it as the cause of a revocation.
func TestCallErrorIs(t *testing.T) {
	lost := &PeerError{Rank: 1, Cause: "reset"}
	for _, test := range []struct {
		cause   error
		mistake bool
	}{
		{ErrArgument, true},
		{ErrConcurrent, true},
		{errPanicked, true},
		{&MismatchError{}, true},
		{&AbortError{Mistake: true}, true},
		{&AbortError{}, false},
		{lost, false},
		{ErrClosed, false},
		{context.Canceled, false},
	} {
		here := error(&callError{fmt.Errorf("barrier (call 1): %w", test.cause)})
		if !errors.Is(here, ErrRevoked) || !errors.Is(here, test.cause) {
			t.Errorf("%v: is ErrRevoked %v, is its cause %v", here, errors.Is(here, ErrRevoked), errors.Is(here, test.cause))
		}
		for at, err := range map[string]error{"here": here, "elsewhere": causeOf(0, here), "of the cause": causeOf(0, test.cause)} {
			if errors.Is(err, ErrMistake) != test.mistake {
				t.Errorf("%v: ErrMistake %s is %v, want %v", test.cause, at, !test.mistake, test.mistake)
			}
		}
	}
}
