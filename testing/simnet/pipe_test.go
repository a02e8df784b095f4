package simnet

import "testing"

func TestShift(t *testing.T) {
	all := []string{"a", "b"}
	queue := all
	if first := shift(&queue); first != "a" || len(queue) != 1 || queue[0] != "b" || all[0] != "" {
		t.Errorf("took %q, queue %q, memory %q", first, queue, all)
	}
}
