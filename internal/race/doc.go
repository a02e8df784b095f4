// Package race tells tests whether the race detector looks on: it takes up to ten times as
// long, and pools lose under it what they hold.
//
//	if race.Enabled {
//		t.Skip("pools lose what they hold under the race detector")
//	}
package race
