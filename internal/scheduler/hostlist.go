package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxHosts bounds the number of hosts in a list. Without a bound a short range such as
	// [1-999999999] would fill the memory.
	maxHosts = 1 << 16
	// maxName bounds the length of a host's name in bytes, as DNS does.
	maxName = 255
)

// errMany reports a list with more than maxHosts hosts.
var errMany = fmt.Errorf("more than %d hosts", maxHosts)

// ExpandHosts returns the host names of a Slurm host list. The numbers of a range in brackets keep
// the leading zeros of its first number. Several brackets in a name give all combinations; the
// first bracket varies slowest.
//
//	a,b[01-03,7],r[1-2]n[1-2]  is  a b01 b02 b03 b7 r1n1 r1n2 r2n1 r2n2
//
// The result equals the output of "scontrol show hostnames", a command that not every node has. An
// error quotes the item that is wrong. With an error the result is nil: a job must not start on a
// part of its hosts.
func ExpandHosts(list string) ([]string, error) {
	items, err := splitItems(list)
	if err != nil {
		return nil, fmt.Errorf("list of hosts %.80q: %w", list, err)
	}
	var hosts []string
	for _, item := range items {
		some, err := expandItem(item)
		if err == nil && len(hosts)+len(some) > maxHosts {
			err = errMany
		}
		if err != nil {
			return nil, fmt.Errorf("list of hosts %.80q: %.80q: %w", list, item, err)
		}
		hosts = append(hosts, some...)
	}
	return hosts, nil
}

// splitItems splits a list at the commas outside of brackets. Brackets that do not match are an
// error.
func splitItems(list string) ([]string, error) {
	var items []string
	begin, inside := 0, false
	for i, c := range list {
		switch {
		case c == '[' && inside, c == ']' && !inside:
			return nil, errors.New("brackets do not match")
		case c == '[' || c == ']':
			inside = c == '['
		case c == ',' && !inside:
			items = append(items, list[begin:i])
			begin = i + 1
		}
	}
	if inside {
		return nil, errors.New("brackets do not match")
	}
	return append(items, list[begin:]), nil
}

// expandItem returns the names of one item, whose brackets must match. Names grow from left to
// right: each round appends the text before a bracket with each number in the bracket. So the last
// bracket varies fastest.
func expandItem(item string) ([]string, error) {
	names := []string{""}
	for item != "" {
		text, rest, bracket := strings.Cut(item, "[")
		ends := []string{text}
		item = ""
		// The bound for the numbers limits the product to maxHosts before anything is allocated.
		if bracket {
			ranges, after, _ := strings.Cut(rest, "]")
			numbers, err := expandRanges(ranges, maxHosts/len(names))
			if err != nil {
				return nil, err
			}
			for i := range numbers {
				numbers[i] = text + numbers[i]
			}
			ends, item = numbers, after
		}
		// Append every end to every name so far.
		var longer []string
		for _, n := range names {
			for _, e := range ends {
				longer = append(longer, n+e)
			}
		}
		names = longer
	}
	for _, n := range names {
		if err := checkName(n); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// expandRanges returns the numbers in a bracket, as text, because 1 and 01 are different names.
// More than most numbers are an error.
func expandRanges(text string, most int) ([]string, error) {
	var out []string
	for r := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(r, "-")
		if !isRange {
			last = first
		}
		lo, err := parseNumber(first)
		if err != nil {
			return nil, err
		}
		hi, err := parseNumber(last)
		switch {
		case err != nil:
			return nil, err
		case hi < lo:
			return nil, fmt.Errorf("range %.40q: the end is below the start", r)
		// The size is checked before the loop, because the range may be enormous.
		case hi-lo >= most-len(out):
			return nil, errMany
		}
		for n := lo; n <= hi; n++ {
			out = append(out, fmt.Sprintf("%0*d", len(first), n))
		}
	}
	return out, nil
}

// parseNumber parses a decimal number of at most 18 digits, which fits in an int.
func parseNumber(text string) (int, error) {
	const mostDigits = 18
	if text == "" || len(text) > mostDigits || strings.Trim(text, "0123456789") != "" {
		return 0, fmt.Errorf("%.40q: want a number of at most %d digits", text, mostDigits)
	}
	return strconv.Atoi(text)
}

// checkName returns an error unless name is a host name. A name that begins with "-" is refused,
// because ssh would read it as a flag.
func checkName(name string) error {
	odd := strings.ContainsFunc(name, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune("._-", c)
	})
	if name == "" || len(name) > maxName || odd || name[0] == '-' {
		return fmt.Errorf("%.80q is not a host name", name)
	}
	return nil
}

// ExpandCounts returns the numbers of a Slurm list, one for each of n hosts: 2(x3),1 is 2 2 2 1. A
// list for more or fewer hosts is an error: n also bounds the memory that a wrong list can take.
func ExpandCounts(list string, n int) ([]int, error) {
	var out []int
	for item := range strings.SplitSeq(list, ",") {
		text, times := item, 1
		if number, rest, ok := strings.Cut(item, "(x"); ok {
			repeat, closed := strings.CutSuffix(rest, ")")
			var err error
			if times, err = parseNumber(repeat); err != nil || !closed || times < 1 {
				return nil, fmt.Errorf("counts %.80q: %.40q, want N or N(xTIMES)", list, item)
			}
			text = number
		}
		count, err := parseNumber(text)
		if err != nil {
			return nil, fmt.Errorf("counts %.80q: %w", list, err)
		}
		if times > n-len(out) {
			return nil, fmt.Errorf("counts %.80q: more numbers than the %d hosts", list, n)
		}
		out = append(out, slices.Repeat([]int{count}, times)...)
	}
	// A shorter list would leave hosts without a number.
	if len(out) != n {
		return nil, fmt.Errorf("counts %.80q: %d numbers for %d hosts", list, len(out), n)
	}
	return out, nil
}
