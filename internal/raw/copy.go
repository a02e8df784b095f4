package raw

// CopyStream copies src to dst, which must have its length and not overlap it. Where
// it can it writes past the caches. That is for destinations which as a whole do not
// fit the caches and are not soon read again, though each call may be for a block of
// them: copy reads such a block from memory before it overwrites it. For all others
// copy is faster, often several times.
func CopyStream[T Number](dst, src []T) {
	checkLengths(len(dst), len(src), len(dst))
	if !copyVectors(levelHere(), dst, src) {
		copy(dst, src)
	}
}
