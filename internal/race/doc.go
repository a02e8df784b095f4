// Package race tells tests whether the race detector is on. With it a test takes up to ten times as
// long, and a sync.Pool drops values at random.
//
//	if race.Enabled {
//		t.Skip("pools lose their content under the race detector")
//	}
package race
