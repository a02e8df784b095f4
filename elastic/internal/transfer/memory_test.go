package transfer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/internal/pause"
)

// A donor's memory for newcomers grows neither with the number of newcomers nor with the number of
// steps. The newcomers of the test send no more requests after they have released the snapshot, and
// their leases remain.
func TestMemoryOfManyJoins(t *testing.T) {
	for state, updates := range map[int]int{31 << 10: 16 << 20, 2 << 20: 64 << 20} {
		synctest.Test(t, func(t *testing.T) {
			d := NewDonor(0, Config{Replays: true})
			defer d.Close()
			most := int64(updates + 2*state*5/4)
			step := int64(0)
			for join := range 130 {
				who := fmt.Sprint(join)
				ask(t, d, request{Do: opTake, Step: step + 1, Who: who})
				for range 50 {
					step++
					if d.Wanted(step) {
						if err := d.Snapshot(step, write(state)); err != nil {
							t.Fatal(err)
						}
						ask(t, d, request{Do: opManifest, Step: step, Who: who})
						ask(t, d, request{Do: opKeep, Step: step, Who: who})
					}
					if d.Logging() {
						if err := d.Update(step, write(min(state/2, 64<<10))); err != nil {
							t.Fatal(err)
						}
					}
					_ = pause.For(t.Context(), time.Millisecond)
				}
				if got := d.Memory(); got > most {
					t.Fatalf("after %d joins %d bytes are kept for a state of %d, want at most %d", join+1, got, state, most)
				}
			}
			d.mu.Lock()
			leases := len(d.leases.by)
			d.mu.Unlock()
			if leases < 100 {
				t.Errorf("%d leases are left: the test shows nothing", leases)
			}
			_ = pause.For(t.Context(), d.cfg.Lease)
			if got := d.Memory(); got != 0 {
				t.Errorf("%d bytes are kept for nobody", got)
			}
		})
	}
}

// The memory of a snapshot is close to the size of the state, even if its pieces are larger.
func TestSnapshotOfSmallState(t *testing.T) {
	for _, state := range []int{1, 31 << 10, 900 << 10, 3<<20 + 1} {
		d := NewDonor(0, Config{})
		d.stateSize = int64(state) // as after an earlier snapshot
		ask(t, d, request{Do: opTake, Step: 1})
		d.Wanted(1)
		if err := d.Snapshot(1, write(state)); err != nil {
			t.Fatal(err)
		}
		if got := d.Memory(); got < int64(state) || got > int64(state)*5/4+16 {
			t.Errorf("a state of %d bytes takes %d", state, got)
		}
		d.Close()
	}
}

func TestLogBytes(t *testing.T) {
	for state, want := range map[int64]int64{
		0: 16 << 20, 31 << 10: 16 << 20, 1 << 20: 32 << 20, 8 << 20: 256 << 20, 1 << 40: 256 << 20, 1 << 62: 256 << 20,
	} {
		if got := (Config{}).logBytes(state); got != want {
			t.Errorf("a state of %d bytes: %d for updates, want %d", state, got, want)
		}
		if got := (Config{LogBytes: 7}).logBytes(state); got != 7 {
			t.Errorf("%d bytes for updates, want 7", got)
		}
	}
}

// Memory returns the number of bytes that are kept for newcomers.
func (d *Donor) Memory() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.bytes + d.snapshots.memory()
}
