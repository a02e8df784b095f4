package mailbox

import (
	"context"
	"fmt"

	"github.com/elrun/elrun/collective/transport"
)

// cancelled is the cause of a revocation by a call whose ctx has ended. For the callers of
// this rank it is also the error of the ctx; for other ranks it is an *AbortError.
type cancelled struct {
	abort *transport.AbortError
	ctx   error
}

// Error returns the text that other ranks see.
func (c *cancelled) Error() string { return c.abort.Error() }

// Unwrap returns both errors. The *AbortError comes first, so that errors.As finds it.
func (c *cancelled) Unwrap() []error { return []error{c.abort, c.ctx} }

// Cancelled returns the cause with which rank self revokes when the ctx of a call has ended. The
// argument what names the call in the text. In the result errors.As finds a *transport.AbortError,
// and errors.Is finds ctx.Err() and context.Cause(ctx).
func Cancelled(ctx context.Context, self int, what string) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); cause != err {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return &cancelled{&transport.AbortError{Rank: self, Cause: fmt.Sprintf("%s: %v", what, err)}, err}
}
