package discovery

import (
	"context"
	"sync"

	datastore "github.com/ipfs/go-datastore"
	dssync "github.com/ipfs/go-datastore/sync"
)

// maxRecords bounds the records in a node, about 20 MB. The bound is needed because anybody can
// make keys and sign records with them.
const maxRecords = 8192

// store keeps records in memory. When it is full, a new record evicts the oldest. Members announce
// periodically, so that a record that a flood has evicted comes back. It is safe for concurrent
// use.
type store struct {
	datastore.Batching     // safe for concurrent use
	most               int // limit of records

	// mu guards the fields below.
	mu     sync.Mutex
	oldest []datastore.Key // keys of the records, oldest first
	there  map[datastore.Key]bool
}

// newStore returns an empty store for most records.
func newStore(most int) *store {
	return &store{Batching: dssync.MutexWrap(datastore.NewMapDatastore()), most: most, there: make(map[datastore.Key]bool)}
}

// Put implements datastore.Datastore. It may evict the oldest record. A record that replaces a
// record with the same key keeps the age of the replaced record. So repeated announcements do not
// protect a record from eviction.
func (s *store) Put(ctx context.Context, key datastore.Key, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.there[key] {
		if len(s.oldest) >= s.most {
			if err := s.dropLocked(ctx, s.oldest[0]); err != nil {
				return err
			}
		}
		s.there[key] = true
		s.oldest = append(s.oldest, key)
	}
	return s.Batching.Put(ctx, key, value)
}

// Delete implements datastore.Datastore.
func (s *store) Delete(ctx context.Context, key datastore.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropLocked(ctx, key)
}

// Batch implements datastore.Batching. It writes the records one by one, so that the bound holds.
func (s *store) Batch(context.Context) (datastore.Batch, error) {
	return datastore.NewBasicBatch(s), nil
}

// dropLocked removes a record. mu is held.
func (s *store) dropLocked(ctx context.Context, key datastore.Key) error {
	delete(s.there, key)
	for i, k := range s.oldest {
		if k == key {
			s.oldest = append(s.oldest[:i], s.oldest[i+1:]...)
			break
		}
	}
	return s.Batching.Delete(ctx, key)
}
