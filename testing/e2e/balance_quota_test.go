package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/testing/process"
)

// quotas measures balancing with real computation by two processes, which have different quotas of processor time.
func (tr *trial) quotas(t *testing.T) error {
	const more, less = 80, 20 // percent of a core
	var groups [2]string
	for i, percent := range []int{more, less} {
		dir, err := cpuGroup(t, percent)
		if err != nil {
			t.Skip("no quotas of CPU time, which root has: ", err)
		}
		groups[i] = dir
	}
	balanced := tr.within(groups).train(t, 2, quotaTask(pick(12, 60))...)
	if !long() {
		return balanced.leans(t, 1, settled, 12)
	}
	equal := tr.within(groups).train(t, 2, quotaTask(20, "--balance", "equal")...)
	fast := tr.within([2]string{groups[0]}).train(t, 1, quotaTask(20)...).rate(0)
	slow := tr.within([2]string{groups[1]}).train(t, 1, quotaTask(10)...).rate(0)
	var ratios []float64
	for _, i := range balanced.full(settled) {
		s := balanced.shares(i)
		ratios = append(ratios, float64(s[0])/float64(s[1]))
	}
	whole, times := balanced.rate(settled)/(fast+slow), balanced.rate(settled)/equal.rate(0)
	t.Logf("quotas of %d and %d %%: alone %.0f and %.0f samples/s; together %.0f: %.1f %% of the sum; shares %.2f to 1 (median), at last %v",
		more, less, fast, slow, balanced.rate(settled), 100*whole, median(ratios), balanced.shares(len(balanced.steps[0])-1))
	t.Logf("with equal shares %.0f samples/s: %.2f times, bound %.2f", equal.rate(0), times, (fast+slow)/2/slow)
	if whole < 0.85 || median(ratios) < 2 || times < 1.8 {
		return fmt.Errorf("%.1f %% of the sum of the speeds, shares %.2f to 1, %.2f times as fast as with equal shares", 100*whole, median(ratios), times)
	}
	return nil
}

// quotaTask returns the arguments of a program that computes as fast as it can.
func quotaTask(steps int, args ...string) []string {
	return append([]string{"--global-batch", pick("4096", "16384"), "--microbatch", "16", "--steps", strconv.Itoa(steps)}, args...)
}

// within returns a trial whose peers enter these control groups, by local index, before they begin.
func (tr *trial) within(groups [2]string) *trial {
	quota := *tr
	quota.wrapper = []string{"sh", "-c", `[ "$ELRUN_INDEX" = 0 ] && g=$0 || g=$1; shift; echo $$ >"$g/cgroup.procs" && exec "$@"`, groups[0], groups[1]}
	return &quota
}

// cpuGroup creates a control group with a quota, in percent of a core. Its processes have a higher
// weight than others, so that they get their quota. It is a group of cgroup version 2 if this
// version has the cpu controller, otherwise a group of version 1.
func cpuGroup(t *testing.T, percent int) (dir string, err error) {
	t.Helper()
	const period = 20_000 // microseconds; a step has many periods
	quota := strconv.Itoa(period * percent / 100)
	root, settings := "/sys/fs/cgroup", [][2]string{{"cpu.max", fmt.Sprintf("%s %d", quota, period)}, {"cpu.weight", "10000"}}
	missing := delegateCPU(root)
	if missing != nil {
		root = filepath.Join(root, "cpu")
		settings = [][2]string{{"cpu.cfs_period_us", strconv.Itoa(period)}, {"cpu.cfs_quota_us", quota}, {"cpu.shares", "262144"}}
	}
	dir = filepath.Join(root, fmt.Sprintf("elrun-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err := makeGroup(dir, settings); err != nil {
		return "", errors.Join(missing, err)
	}
	t.Cleanup(func() { process.Until(t, "the end of all in "+dir, func() bool { return os.Remove(dir) == nil }) })
	return dir, nil
}

// delegateCPU enables the cpu controller for the groups below root, a group of cgroup version 2.
func delegateCPU(root string) error {
	file := filepath.Join(root, "cgroup.subtree_control")
	b, err := os.ReadFile(file)
	if err != nil || slices.Contains(strings.Fields(string(b)), "cpu") {
		return err
	}
	return os.WriteFile(file, []byte("+cpu"), 0)
}

// makeGroup creates a group and writes its settings.
func makeGroup(dir string, settings [][2]string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, s := range settings {
		if err := os.WriteFile(filepath.Join(dir, s[0]), []byte(s[1]), 0); err != nil {
			return errors.Join(err, os.Remove(dir))
		}
	}
	return nil
}
