package main

import (
	"fmt"
	"strconv"
	"strings"
)

// batches is the value of --global-batch: the samples of a step, or a range in which they grow.
type batches struct {
	first int
	max   int // samples of the largest batch; 0 if the batch does not grow
}

// UnmarshalText parses N or N-MAX, as in "512" or "128-1024".
func (b *batches) UnmarshalText(text []byte) error {
	first, most, grows := strings.Cut(string(text), "-")
	n, err := strconv.Atoi(first)
	if err != nil {
		return fmt.Errorf("%q is neither a number of samples nor a range, as in 512 or 128-1024", text)
	}
	if n < 1 {
		return fmt.Errorf("%d is less than 1", n)
	}
	*b = batches{first: n}
	if !grows {
		return nil
	}
	if b.max, err = strconv.Atoi(most); err != nil {
		return fmt.Errorf("%q is no range of samples, as in 128-1024", text)
	}
	if b.max <= n {
		return fmt.Errorf("the range %s has to end above %d", text, n)
	}
	return nil
}

// String is the inverse of UnmarshalText.
func (b batches) String() string {
	if b.max == 0 {
		return fmt.Sprint(b.first)
	}
	return fmt.Sprintf("%d-%d", b.first, b.max)
}
