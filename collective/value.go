package collective

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"reflect"

	"github.com/elrun/elrun/internal/gobtype"
)

// MaxValue is the maximum length, in bytes, of an encoded value of BroadcastValue and GatherValues.
// Vectors of numbers belong in Broadcast and GatherV, which do not copy them.
const MaxValue = 64 << 20

// BroadcastValue copies the value *v of root into *v of every rank. Package encoding/gob encodes the
// value, so it may contain strings, slices, maps and pointers. The type must be the same at all
// ranks. A type with unexported fields, functions or channels, which gob would leave out, is an
// ErrArgument. After an error *v of root is intact, and of the other ranks undefined.
//
// Costs: a Broadcast of the length and a Broadcast of the encoded value.
func BroadcastValue[V any](ctx context.Context, c *Comm, v *V, root int) error {
	c = c.orInvalid()
	length, data := make([]int64, 1), []byte(nil)
	var err error
	if v == nil {
		err = errors.New("the pointer to the value is nil")
	} else if c.rank == root {
		data, err = encodeValue(v)
		length[0] = int64(len(data))
	}
	if err := c.run(ctx, planValue[V](planBroadcast(c, length, root), err)); err != nil {
		return err
	}
	err = checkLengths(length)
	if err == nil && c.rank != root {
		data = make([]byte, length[0])
	}
	if err := c.run(ctx, planValue[V](planBroadcast(c, data, root), err)); err != nil || c.rank == root {
		return err
	}
	*v, err = decodeValue[V](data)
	return failDecoded(c, err)
}

// GatherValues returns at root the values of all ranks, in the order of ranks, and nil at the other
// ranks. The values are encoded as by BroadcastValue.
//
// Costs: an AllGather of the lengths and a GatherV of the encoded values.
func GatherValues[V any](ctx context.Context, c *Comm, v V, root int) ([]V, error) {
	c = c.orInvalid()
	data, err := encodeValue(&v)
	lengths := make([]int64, c.size)
	if err := c.run(ctx, planValue[V](planAllGather(c, lengths, []int64{int64(len(data))}, nil, false), err)); err != nil {
		return nil, err
	}
	counts, all := make([]int, c.size), []byte(nil)
	if err = checkLengths(lengths); err == nil {
		for rank, n := range lengths {
			counts[rank] = int(n)
		}
	}
	bounds := offsets(counts)
	if c.rank == root {
		all = make([]byte, bounds[c.size])
	}
	if err := c.run(ctx, planValue[V](planGather(c, all, data, counts, true, root), err)); err != nil || c.rank != root {
		return nil, err
	}
	values := make([]V, c.size)
	for rank := range values {
		if values[rank], err = decodeValue[V](all[bounds[rank]:bounds[rank+1]]); err != nil {
			return nil, failDecoded(c, fmt.Errorf("rank %d: %w", rank, err))
		}
	}
	return values, nil
}

// planValue marks a plan as part of a call with a value of type V, so that ranks with another type,
// or with a vector, find a mismatch. An err fails the plan.
func planValue[V any](p plan, err error) plan {
	clear(p.call.Op[copy(p.call.Op[:], "of "+reflect.TypeFor[V]().String()):])
	if err != nil {
		p.fail("%v", err)
	}
	return p
}

// encoded is what gob encodes. Gob can leave out a nil pointer only in a field.
type encoded[V any] struct{ Value V }

// encodeValue encodes a value with the descriptions of its types.
func encodeValue[V any](v *V) ([]byte, error) {
	if err := gobtype.Check(reflect.TypeFor[V](), gobtype.Copied); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(encoded[V]{*v}); err != nil {
		return nil, err
	}
	return b.Bytes(), checkLengths([]int64{int64(b.Len())})
}

// decodeValue decodes the output of encodeValue.
func decodeValue[V any](b []byte) (v V, err error) {
	r := bytes.NewReader(b)
	var e encoded[V]
	if err := gob.NewDecoder(r).Decode(&e); err != nil {
		return v, err
	}
	if r.Len() > 0 {
		return v, fmt.Errorf("gob: %d bytes after the value", r.Len())
	}
	return e.Value, nil
}

// checkLengths returns an error if an encoded value is too long. Lengths come from other ranks, so
// they are checked before memory is allocated.
func checkLengths(lengths []int64) error {
	for _, n := range lengths {
		if n < 0 || n > MaxValue {
			return fmt.Errorf("a value of %d bytes, want at most %d; send vectors of numbers by Broadcast or GatherV", n, MaxValue)
		}
	}
	return nil
}

// failDecoded revokes because a value of another rank cannot be decoded: as after every failed call,
// all ranks get the error. It returns nil if err is nil.
func failDecoded(c *Comm, err error) error {
	if err == nil {
		return nil
	}
	err = &callError{fmt.Errorf("decode a value of another rank: %w: %w", ErrMistake, err)}
	c.revoke(err)
	c.reportError(err)
	return err
}
