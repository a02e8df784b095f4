package collective

import (
	"testing"
	"testing/synctest"
)

// Calls proceed in the order of their tickets, and each wakes only the next one.
func TestTurnsWakeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		turns := new(turns)
		turns.drawn = n
		var order []uint32 // needs no lock: only the call that has its turn appends
		for ticket := uint32(1); ticket < n; ticket++ {
			go func() {
				o := &operation{turns: turns, ticket: ticket}
				if err := turns.enter(o); err != nil {
					t.Error(err)
				}
				order = append(order, ticket)
			}()
		}
		for ticket := uint32(1); ticket < n; ticket++ {
			synctest.Wait()
			if asleep := len(turns.wake); asleep != int(n-ticket) || len(order) != int(ticket-1) {
				t.Fatalf("turn %d: %d calls asleep, %v went", ticket, asleep, order)
			}
			turns.leave(true)
		}
		synctest.Wait()
		for i, ticket := range order {
			if ticket != uint32(i+1) {
				t.Fatalf("order %v", order)
			}
		}
	})
}

// A call that fails releases all waiters, and all of them fail.
func TestTurnsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := new(turns)
		turns.drawn = 10
		w := new(world)
		failed := 0
		for ticket := uint32(5); ticket < 10; ticket++ {
			go func() {
				if turns.enter(&operation{Comm: &Comm{world: w}, turns: turns, ticket: ticket}) != nil {
					w.mu.Lock()
					defer w.mu.Unlock()
					failed++
				}
			}()
		}
		synctest.Wait()
		turns.leave(false)
		synctest.Wait()
		if failed != 5 {
			t.Errorf("%d of 5 calls were let go", failed)
		}
	})
}
