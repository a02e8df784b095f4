package cores

import (
	"runtime"
	"testing"
	"testing/fstest"
)

// tree returns a file system with the given files and the two files of /proc.
func tree(groups, mounts string, files map[string]string) fstest.MapFS {
	t := fstest.MapFS{
		"proc/self/cgroup":    {Data: []byte(groups)},
		"proc/self/mountinfo": {Data: []byte("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + mounts)},
	}
	for name, text := range files {
		t[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return t
}

// Lines of mountinfo: second is a cgroup hierarchy of version 2, first is a hierarchy of version 1
// with the CPU controller, and others is a hierarchy of version 1 without it.
const (
	second = "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	first  = "32 22 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n"
	others = "33 22 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
)

// Count finds the lowest quota in both versions of cgroups, and ignores files that it cannot read.
func TestCount(t *testing.T) {
	v1 := func(dir, quota string) map[string]string {
		return map[string]string{dir + "/cpu.cfs_quota_us": quota + "\n", dir + "/cpu.cfs_period_us": "100000\n"}
	}
	const cpu = "sys/fs/cgroup/cpu,cpuacct"
	for name, c := range map[string]struct {
		root fstest.MapFS
		want int
	}{
		"no cgroups":        {fstest.MapFS{}, 8},
		"no quota":          {tree("0::/a\n", second, map[string]string{"sys/fs/cgroup/a/cpu.max": "max 100000\n"}), 8},
		"two":               {tree("0::/a\n", second, map[string]string{"sys/fs/cgroup/a/cpu.max": "200000 100000\n"}), 2},
		"one and a half":    {tree("0::/a\n", second, map[string]string{"sys/fs/cgroup/a/cpu.max": "75000 50000\n"}), 2},
		"little":            {tree("0::/a\n", second, map[string]string{"sys/fs/cgroup/a/cpu.max": "1000 100000\n"}), 1},
		"more than there":   {tree("0::/a\n", second, map[string]string{"sys/fs/cgroup/a/cpu.max": "6400000 100000\n"}), 8},
		"of one above":      {tree("0::/a/b/c\n", second, map[string]string{"sys/fs/cgroup/a/cpu.max": "300000 100000\n", "sys/fs/cgroup/a/b/c/cpu.max": "max 100000\n"}), 3},
		"the smallest":      {tree("0::/a/b\n", second, map[string]string{"sys/fs/cgroup/a/cpu.max": "300000 100000\n", "sys/fs/cgroup/a/b/cpu.max": "500000 100000\n"}), 3},
		"of others":         {tree("0::/a\n", second, map[string]string{"sys/fs/cgroup/b/cpu.max": "100000 100000\n"}), 8},
		"of a namespace":    {tree("0::/\n", second, map[string]string{"sys/fs/cgroup/cpu.max": "400000 100000\n"}), 4},
		"outside the mount": {tree("0::/../x\n", second, map[string]string{"sys/fs/cgroup/cpu.max": "400000 100000\n"}), 4},
		"a part is mounted": {tree("0::/docker/7/a\n", "30 22 0:26 /docker/7 /cg rw - cgroup2 c rw\n", map[string]string{"cg/a/cpu.max": "100000 50000\n"}), 2},
		"another root":      {tree("0::/docker/7\n", "30 22 0:26 /kube /cg rw - cgroup2 c rw\n", map[string]string{"cg/cpu.max": "100000 50000\n"}), 2},
		"a place of blanks": {tree("0::/\n", "30 22 0:26 / /c\\040g rw - cgroup2 c rw\n", map[string]string{"c g/cpu.max": "100000 50000\n"}), 2},
		"nonsense":          {tree("0::/a\n", second, map[string]string{"sys/fs/cgroup/a/cpu.max": "a lot\n"}), 8},
		"half a line":       {tree("0::/a\n", second, map[string]string{"sys/fs/cgroup/a/cpu.max": "100000\n"}), 8},
		"version 1":         {tree("5:cpuset:/\n4:cpu,cpuacct:/j\n", others+first, v1(cpu+"/j", "250000")), 3},
		"version 1, none":   {tree("4:cpu,cpuacct:/j\n", first, v1(cpu+"/j", "-1")), 8},
		"version 1, above":  {tree("4:cpu,cpuacct:/j/k\n", first, v1(cpu+"/j", "100000")), 1},
		"both versions":     {tree("4:cpu,cpuacct:/j\n0::/j\n", second+first, v1(cpu+"/j", "500000")), 5},
		"cpuset only":       {tree("5:cpuset:/j\n", others, map[string]string{"sys/fs/cgroup/cpuset/j/cpu.cfs_quota_us": "100000"}), 8},
		"broken mountinfo":  {tree("0::/a\n", "30 22\n\n - cgroup2\n", nil), 8},
	} {
		if got := count(c.root, 8); got != c.want {
			t.Errorf("%s: %d cores, want %d", name, got, c.want)
		}
	}
}

// FuzzCount checks that the number is between 1 and the number of processors, whatever the files contain.
func FuzzCount(f *testing.F) {
	f.Add("0::/a/b\n", second, "100000 50000")
	f.Add("4:cpu:/../..\n", first, "max")
	f.Fuzz(func(t *testing.T, groups, mounts, text string) {
		root := tree(groups, mounts, map[string]string{"sys/fs/cgroup/cpu.max": text, "sys/fs/cgroup/a/cpu.max": text})
		if n := count(root, 8); n < 1 || n > 8 {
			t.Errorf("%d cores", n)
		}
	})
}

// With the real files of this system, Count returns a possible number.
func TestCountHere(t *testing.T) {
	if n := Count(); n < 1 || n > runtime.NumCPU() {
		t.Errorf("%d cores of %d", n, runtime.NumCPU())
	}
}
