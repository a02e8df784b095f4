package discovery

import (
	"context"
	"sync"

	datastore "github.com/ipfs/go-datastore"
	dssync "github.com/ipfs/go-datastore/sync"
)

// maxRecords is how many records a node keeps: some 20 MB. Anybody can make up keys and sign
// records with them.
const maxRecords = 8192

// store keeps records in memory. Where there are too many the oldest makes way: members announce
// again and again, so that a record that was pushed out by a flood comes back.
type store struct {
	datastore.Batching // safe for concurrent use
	most               int

	mu     sync.Mutex
	oldest []datastore.Key // those written, the oldest first
	there  map[datastore.Key]bool
}

// newStore makes an empty store for so many records.
func newStore(most int) *store {
	return &store{Batching: dssync.MutexWrap(datastore.NewMapDatastore()), most: most, there: make(map[datastore.Key]bool)}
}

// Put implements datastore.Datastore.
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

// Batch implements datastore.Batching: one by one, so that the bound holds.
func (s *store) Batch(context.Context) (datastore.Batch, error) {
	return datastore.NewBasicBatch(s), nil
}

// dropLocked removes a record.
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
