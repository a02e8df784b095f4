package scheduler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestExpandHosts(t *testing.T) {
	for list, want := range map[string]string{
		"a":                            "a",
		"a,b[01-03,7],r[1-2]n[1-2]":    "a b01 b02 b03 b7 r1n1 r1n2 r2n1 r2n2",
		"n[8-11]":                      "n8 n9 n10 n11",
		"n[098-101]":                   "n098 n099 n100 n101",
		"a[1]b,c.d-e_f":                "a1b c.d-e_f",
		"[1-2]x":                       "1x 2x",
		"a[1-2][3,5]":                  "a13 a15 a23 a25",
		"n[007]":                       "n007",
		"x[000000000000000001-000002]": "x000000000000000001 x000000000000000002",
	} {
		if got, err := ExpandHosts(list); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, error %v, want %s", list, got, err, want)
		}
	}
	for list, want := range map[string]string{
		"":                         "not a host name",
		"a,":                       "not a host name",
		"a[1-2":                    "brackets",
		"a]1[":                     "brackets",
		"a[[1]]":                   "brackets",
		"a[2-1]":                   "below the start",
		"a[]":                      "want a number",
		"a[1-]":                    "want a number",
		"a[1-2-3]":                 "want a number",
		"a[-1]":                    "want a number",
		"a[x]":                     "want a number",
		"a[1-999999999]":           "more than",
		"a[0-9999999999999999999]": "want a number",
		"a[0-300]b[0-300]":         "more than",
		"a[0-65535],b":             "more than",
		"-oProxyCommand=x":         "not a host name",
		"a;b":                      "not a host name",
		"$(b)":                     "not a host name",
		"a b":                      "not a host name",
		strings.Repeat("a", 256):   "not a host name",
	} {
		if got, err := ExpandHosts(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d names, error %v, want %s", list, len(got), err, want)
		}
	}
}

// rewrite is a slow reference implementation of ExpandHosts. It replaces the first bracket by each of its numbers, and repeats
// this until no bracket is left.
func rewrite(list string) []string {
	before, rest, bracket := strings.Cut(list, "[")
	if !bracket {
		return strings.Split(list, ",")
	}
	ranges, after, _ := strings.Cut(rest, "]")
	begin, end, inside := strings.LastIndex(before, ",")+1, 0, false
	for ; end < len(after) && (after[end] != ',' || inside); end++ {
		inside = after[end] == '[' || inside && after[end] != ']'
	}
	var items []string
	for r := range strings.SplitSeq(ranges, ",") {
		first, last, ok := strings.Cut(r, "-")
		if !ok {
			last = first
		}
		var lo, hi int
		_, _ = fmt.Sscan(strings.TrimLeft(first, "0")+" "+strings.TrimLeft(last, "0"), &lo, &hi)
		for n := lo; n <= hi; n++ {
			number := fmt.Sprint(n)
			number = strings.Repeat("0", max(0, len(first)-len(number))) + number
			items = append(items, before[begin:]+number+after[:end])
		}
	}
	return rewrite(before[:begin] + strings.Join(items, ",") + after[end:])
}

func TestExpandAsRewritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var items []string
		for range 1 + rng.IntN(3) {
			item := string(rune('a' + rng.IntN(26)))
			for range rng.IntN(3) {
				var ranges []string
				for range 1 + rng.IntN(3) {
					lo := 1 + rng.IntN(12)
					ranges = append(ranges, []string{fmt.Sprintf("%0*d", 1+rng.IntN(3), lo), fmt.Sprintf("%0*d-%d", 1+rng.IntN(3), lo, lo+rng.IntN(4))}[rng.IntN(2)])
				}
				item += "[" + strings.Join(ranges, ",") + "]" + []string{"", "x"}[rng.IntN(2)]
			}
			items = append(items, item)
		}
		list := strings.Join(items, ",")
		got, err := ExpandHosts(list)
		if want := rewrite(list); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%s: %v, error %v, want %v", list, got, err, want)
		}
	}
}

func TestExpandCounts(t *testing.T) {
	for list, want := range map[string][]int{"2(x3),1": {2, 2, 2, 1}, "4": {4}, "1,2,3": {1, 2, 3}} {
		if got, err := ExpandCounts(list, len(want)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, error %v", list, got, err)
		}
	}
	for _, list := range []string{"", "1", "1,2,3", "1(x3)", "1(x0)", "1(x999999999)", "x,1", "1(x2", "1(y2)", "-1,1", "1(x2),"} {
		if got, err := ExpandCounts(list, 2); err == nil {
			t.Errorf("%q: %v, no error", list, got)
		}
	}
}

// with returns an environment with one file and with the variables vars, each in the form NAME=VALUE.
func with(file string, vars ...string) Environment {
	set := make(map[string]string)
	for _, v := range vars {
		name, value, _ := strings.Cut(v, "=")
		set[name] = value
	}
	return Environment{
		Get: func(name string) string { return set[name] },
		Read: func(path string) (string, error) {
			if file == "" {
				return "", errors.New("no such file")
			}
			return file, nil
		},
	}
}

func TestFind(t *testing.T) {
	batch := []string{"SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_TASKS_PER_NODE=2,1", "SLURM_PROCID=0", "SLURMD_NODENAME=n1"}
	one := []string{"SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n1", "SLURM_TASKS_PER_NODE=4"}
	for _, c := range []struct {
		name string
		env  Environment
		want string
	}{
		{"a shell without a batch system", with("", "HOME=/"), ""},
		{"the script of sbatch", with("", batch...), "Slurm job 12 n1:2,n2:1 slurm"},
		{"the script of sbatch, in a step", with("", append(batch, "SLURM_STEP_ID=4294967291")...), "Slurm job 12 n1:2,n2:1 slurm"},
		{"the shell of salloc", with("", append(one, "SLURM_STEP_ID=4294967290")...), "Slurm job 12 n1:4 slurm"},
		{"a task of srun", with("", append(batch, "SLURM_STEP_ID=0")...), ""},
		{"the only host is this one", with("", append(one, "SLURMD_NODENAME=n1")...), "Slurm job 12 n1:4 slurm here"},
		{"with one place", with("", "SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n1", "SLURMD_NODENAME=n1"), ""},
		{"the first group of several", with("", append(batch, "SLURM_HET_SIZE=3")...), "Slurm job 12 n1:2,n2:1 slurm 3 groups"},
		{"the only host of the first group", with("", "SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n1", "SLURMD_NODENAME=n1", "SLURM_HET_SIZE=2"), "Slurm job 1 n1:1 slurm here 2 groups"},
		{"PBS", with("h1\nh1\nh2\n", "PBS_NODEFILE=f", "PBS_JOBID=7.s"), "PBS job 7.s h1:2,h2:1"},
		{"PBS, one place", with("h1\n", "PBS_NODEFILE=f"), ""},
		{"LSF", with("", "LSB_MCPU_HOSTS=h1 2 h2 2 ", "LSB_JOBID=8"), "LSF job 8 h1:2,h2:2"},
		{"LSF, by its file", with("h1\nh2\n", "LSB_DJOB_HOSTFILE=f", "LSB_JOBID=8"), "LSF job 8 h1:1,h2:1"},
	} {
		a, err := Find(c.env)
		got := ""
		if a != nil {
			got = a.From + " " + a.String() + map[bool]string{true: " slurm"}[a.Slurm] + map[bool]string{true: " here"}[a.Here]
			if a.Groups > 0 {
				got += fmt.Sprintf(" %d groups", a.Groups)
			}
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %q, error %v, want %q", c.name, got, err, c.want)
		}
	}
	for want, env := range map[string]Environment{
		"SLURM_JOB_NODELIST":   with("", "SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n["),
		"SLURM_TASKS_PER_NODE": with("", "SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n1", "SLURM_TASKS_PER_NODE=1(x2)"),
		"no such file":         with("", "PBS_NODEFILE=f"),
		"no hosts":             with("\n", "PBS_NODEFILE=f"),
		"not a host name":      with("-x\n", "PBS_NODEFILE=f"),
		"pairs":                with("", "LSB_MCPU_HOSTS=h1 2 h2"),
		"want a number":        with("", "LSB_MCPU_HOSTS=h1 many"),
		"at most 4096":         with("", "LSB_MCPU_HOSTS=h1 999999999999"),
	} {
		if a, err := Find(env); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, error %v, want %s", a, err, want)
		}
	}
}

func TestFindTask(t *testing.T) {
	step := []string{"SLURM_CLUSTER_NAME=lab", "SLURM_JOB_ID=12", "SLURM_STEP_ID=3", "SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=3",
		"SLURM_STEP_NUM_NODES=3", "SLURM_LOCALID=0", "SLURMD_NODENAME=n3"}
	for _, c := range []struct {
		more, want, label string
	}{
		{"A=", "{lab-12.3.0 2 3 n3 0 false}", "n3"},
		{"SLURM_CLUSTER_NAME=", "{cluster-12.3.0 2 3 n3 0 false}", "n3"},
		{"SLURM_RESTART_COUNT=1", "{lab-12.3.1 2 3 n3 0 false}", "n3"},
		{"SLURM_STEP_NUM_NODES=2", "{lab-12.3.0 2 3 n3 0 true}", "n3:0"},
		{"SLURM_STEP_NUM_TASKS=1", "", ""},
		{"SLURM_STEP_ID=4294967291", "", ""},
		{"SLURM_STEP_ID=", "", ""},
	} {
		task, ok, err := FindTask(with("", append(step, c.more)...))
		got := ""
		if ok {
			got = fmt.Sprint(task)
		}
		if err != nil || got != c.want || ok && task.Label() != c.label {
			t.Errorf("%s: %q, error %v, want %q", c.more, got, err, c.want)
		}
	}
	if _, _, err := FindTask(with("", append(step, "SLURM_PROCID=3", "SLURM_HET_SIZE=2")...)); err == nil || !strings.Contains(err.Error(), "elrun join") {
		t.Errorf("a step of two groups: error %v", err)
	}
	for _, more := range []string{"SLURM_PROCID=3", "SLURM_PROCID=x", "SLURM_LOCALID=", "SLURM_RESTART_COUNT=../x", "SLURMD_NODENAME=a b"} {
		if task, ok, err := FindTask(with("", append(step, more)...)); err == nil {
			t.Errorf("%s: %v %v, no error", more, task, ok)
		}
	}
}

func FuzzExpandHosts(f *testing.F) {
	for _, list := range []string{"a,b[01-03,7],r[1-2]n[1-2]", "a[1-999999999]", "[", "a[1-2"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := ExpandHosts(list)
		if err == nil && (len(hosts) == 0 || len(hosts) > maxHosts) {
			t.Errorf("%d hosts", len(hosts))
		}
		for _, h := range hosts {
			if checkName(h) != nil {
				t.Errorf("host %q", h)
			}
		}
	})
}

func FuzzFind(f *testing.F) {
	f.Add("h1\nh1\nh2\n", "2(x3),1", "h1 2 h2 2")
	f.Fuzz(func(t *testing.T, file, counts, pairs string) {
		for _, env := range []Environment{with(file, "PBS_NODEFILE=f"), with("", "LSB_MCPU_HOSTS="+pairs),
			with("", "SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n[1-4]", "SLURM_TASKS_PER_NODE="+counts)} {
			a, err := Find(env)
			if a == nil || err != nil {
				continue
			}
			for _, h := range a.Hosts {
				if checkName(h.Name) != nil || h.Slots < 1 || h.Slots > maxSlots {
					t.Errorf("host %+v", h)
				}
			}
		}
	})
}
