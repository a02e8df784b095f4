package run

import (
	"errors"
	"net"
	"testing"
)

func TestCheckLoopback(t *testing.T) {
	lo, eth := net.Interface{Flags: net.FlagLoopback}, net.Interface{Flags: net.FlagUp}
	up := net.Interface{Flags: net.FlagLoopback | net.FlagUp}
	for _, c := range []struct {
		all  []net.Interface
		want error
	}{{nil, nil}, {[]net.Interface{eth}, nil}, {[]net.Interface{lo, eth}, errLoopback}, {[]net.Interface{up}, nil},
		{[]net.Interface{lo, up}, nil}} {
		if err := checkLoopback(c.all); !errors.Is(err, c.want) {
			t.Errorf("%+v: got %v, want %v", c.all, err, c.want)
		}
	}
}
