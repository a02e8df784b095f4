package spec

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestOutputDefaults(t *testing.T) {
	var out Output
	out.defaults()
	if out.Stdout != io.Discard || out.Stderr != io.Discard || out.Events != nil {
		t.Errorf("%+v", out)
	}
	out = Output{Stdout: os.Stdout}
	if out.defaults(); out.Stdout != os.Stdout || out.Stderr != io.Discard {
		t.Errorf("%+v", out)
	}
}

func TestOutputPrepares(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := (&Output{LogDir: dir}).Prepare(); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if err := (&Output{LogDir: os.Args[0]}).Prepare(); err == nil {
		t.Error("a file is no folder for logs")
	}
	if err := (&Output{}).Prepare(); err != nil {
		t.Error(err)
	}
}

func TestOutputPrefix(t *testing.T) {
	for _, c := range []struct {
		out  Output
		host string
		want string
	}{
		{Output{}, "", "[0] "},
		{Output{Label: "task"}, "", "[0@task] "},
		{Output{Label: "task"}, "a", "[0@a] "},
		{Output{Plain: true, Label: "task"}, "a", ""},
	} {
		if got := c.out.Prefix("0", c.host); got != c.want {
			t.Errorf("%+v at host %q: %q, want %q", c.out, c.host, got, c.want)
		}
	}
}
