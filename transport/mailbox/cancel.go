package mailbox

import (
	"context"
	"fmt"

	"github.com/elrun/elrun/collective/transport"
)

// cancelled is the cause of a revocation by a call whose ctx ended: to this rank's
// callers it is the error of the ctx as well, to other ranks an *AbortError.
type cancelled struct {
	abort *transport.AbortError
	ctx   error
}

// Error is the text that other ranks see.
func (e *cancelled) Error() string { return e.abort.Error() }

// Unwrap gives both faces; the order lets errors.As find the *AbortError.
func (e *cancelled) Unwrap() []error { return []error{e.abort, e.ctx} }

// Cancelled returns the cause of the revocation by call what of rank self, whose ctx
// has ended. errors.As finds a *transport.AbortError in it, errors.Is the error and
// the cause of ctx.
func Cancelled(ctx context.Context, self int, what string) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); cause != err {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return &cancelled{&transport.AbortError{Rank: self, Cause: fmt.Sprintf("%s: %v", what, err)}, err}
}
