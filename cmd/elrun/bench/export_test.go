package bench

import (
	"context"

	"github.com/elrun/elrun/collective"
)

// BadLink measures the link from rank 0, which sends other values than the receiver expects.
func BadLink(ctx context.Context, c *collective.Comm) (float64, error) {
	op := "sum"
	if c.Rank() == 0 {
		op = "prod"
	}
	return link(ctx, c, newValues[int32](op, c.Size()), 0)
}
