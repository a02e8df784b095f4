package collective

import (
	"testing"
	"testing/synctest"
)

// Calls proceed in the order of their tickets, and each call wakes only the next call.
func TestTicketLockWakesOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		lock := new(ticketLock)
		lock.issued = n
		var order []uint32 // needs no lock: only the call that has its turn appends
		for ticket := uint32(1); ticket < n; ticket++ {
			go func() {
				o := &operation{lock: lock, ticket: ticket}
				if err := lock.acquire(o); err != nil {
					t.Error(err)
				}
				order = append(order, ticket)
			}()
		}
		for ticket := uint32(1); ticket < n; ticket++ {
			synctest.Wait()
			if asleep := len(lock.wakeups); asleep != int(n-ticket) || len(order) != int(ticket-1) {
				t.Fatalf("turn %d: %d calls asleep, %v went", ticket, asleep, order)
			}
			lock.release(true)
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
func TestTicketLockFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := new(ticketLock)
		lock.issued = 10
		ep := new(endpoint)
		failed := 0
		for ticket := uint32(5); ticket < 10; ticket++ {
			go func() {
				if lock.acquire(&operation{Comm: &Comm{endpoint: ep}, lock: lock, ticket: ticket}) != nil {
					ep.mu.Lock()
					defer ep.mu.Unlock()
					failed++
				}
			}()
		}
		synctest.Wait()
		lock.release(false)
		synctest.Wait()
		if failed != 5 {
			t.Errorf("%d of 5 calls were let go", failed)
		}
	})
}
