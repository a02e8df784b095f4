package spec

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRemoteDefaults(t *testing.T) {
	var r Remote
	if err := r.check(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
	if r.Defaults(); r.ConnectTimeout != 10*time.Second {
		t.Errorf("connect timeout %v", r.ConnectTimeout)
	}
	r = Remote{Hosts: []Host{{Name: "a"}}, SSH: "ssh -q", Srun: true, ConnectTimeout: 1, Copy: true, Dir: "/", Detach: true}
	if err := r.check(); err != nil {
		t.Errorf("%+v: %v", r, err)
	}
	if r.Defaults(); r.ConnectTimeout != 1 {
		t.Errorf("connect timeout %v", r.ConnectTimeout)
	}
}

func TestBadRemote(t *testing.T) {
	const none = "there is no list of hosts"
	for _, c := range []struct {
		r    Remote
		want string
	}{
		{Remote{SSH: "ssh"}, none},
		{Remote{Srun: true}, none},
		{Remote{Copy: true}, none},
		{Remote{Dir: "/"}, none},
		{Remote{Detach: true}, none},
		{Remote{ConnectTimeout: -1}, "connect timeout -1ns"},
	} {
		if err := c.r.check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q in it", c.r, err, c.want)
		}
	}
}

func TestParseHosts(t *testing.T) {
	for list, want := range map[string][]Host{
		"a":             {{Name: "a", Slots: 1}},
		"a:2,b":         {{Name: "a", Slots: 2}, {Name: "b", Slots: 1}},
		"me@a:3, b:1,b": {{Name: "me@a", Slots: 3}, {Name: "b", Slots: 2}},
		"[::1]:2,::1":   {{Name: "::1", Slots: 3}},
		"me@fe80::1%e0": {{Name: "me@fe80::1%e0", Slots: 1}},
	} {
		if got, err := ParseHosts(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, error %v", list, got, err)
		}
	}
	for _, list := range []string{"", "a,", "a:0", "a:x", "a:-1", "a:4097", "-oProxyCommand=x", "a b", "a;b", "$(b)", "caf\xe9",
		"[::1]:", "[::1]:0", "[::1]2", "[::1", "::1]", "[a]:1", "[1.2.3.4]", "a:b:c", "me@[]:1", "me@:1", "n[1-2]"} {
		if got, err := ParseHosts(list); err == nil {
			t.Errorf("%q: %v, no error", list, got)
		}
	}
}

func TestReadHostfile(t *testing.T) {
	got, err := ReadHostfile(strings.NewReader("# ours\na slots=2\n\nme@b  # all cores\nc:3\na slots=1\n"))
	if want := []Host{{Name: "a", Slots: 3}, {Name: "me@b"}, {Name: "c", Slots: 3}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, error %v", got, err)
	}
	// A host in several lines without slots, as in PBS_NODEFILE; a byte-order mark; lines of Windows.
	got, err = ReadHostfile(strings.NewReader("\ufeffa\r\nb\r\na\na\nc slots=2\nc\n[fe80::1%eth0]\nme@[::1]:2\n::1\n"))
	if want := []Host{{Name: "a", Slots: 3}, {Name: "b"}, {Name: "c", Slots: 3}, {Name: "fe80::1%eth0"}, {Name: "me@::1", Slots: 2}, {Name: "::1"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, error %v", got, err)
	}
	got, err = ReadHostfile(strings.NewReader("a slots=2 site=berlin\nb site=x\na site=berlin slots=1\n"))
	if want := []Host{{Name: "a", Slots: 3, Site: "berlin"}, {Name: "b", Site: "x"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, error %v", got, err)
	}
	for text, want := range map[string]string{
		"a site=":        "site=NAME",
		"a site=a/b":     "letters, digits",
		"a site=x\na":    "name one",
		"a\nb slots=x":   "line 2",
		"a max-slots=2":  "slots=N",
		"a slots=2 fast": "slots=N",
		"# nobody\n":     "no host",
		"a:no":           "line 1",
	} {
		if got, err := ReadHostfile(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, error %v", text, got, err)
		}
	}
}

func FuzzReadHostfile(f *testing.F) {
	f.Add("a slots=2 # x\nb\n")
	f.Add("me@a:1")
	f.Add("\ufeffa\na\n[::1]:2")
	f.Fuzz(func(t *testing.T, text string) {
		hosts, err := ReadHostfile(strings.NewReader(text))
		if err == nil && len(hosts) == 0 {
			t.Error("no host, and no error")
		}
		for _, h := range hosts {
			if h.Name == "" || h.Name[0] == '-' || h.Slots < 0 {
				t.Errorf("host %+v", h)
			}
		}
	})
}
