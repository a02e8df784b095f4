// Package checkpoint keeps the files of a training job: checkpoints, from which it
// can go on, and the parameters as safetensors for other programs.
//
// A checkpoint is one file, step-000000001200.elrun in the job's folder. It appears
// under that name only when it is complete and on the disk, so a crash at any instant
// leaves the ones before it:
//
//	path, err := checkpoint.Write(dir, header, state.Save)
//	err = checkpoint.Keep(dir, 3, header.Step)
//
// To go on, take the newest one that is whole and fits:
//
//	c, problems, err := checkpoint.Latest(dir, fits)  // problems: files passed over
//	defer c.Close()
//	err = c.Load(state.Load)
//
// # Format
//
// Numbers are little-endian; checksums are XXH64.
//
//	8 bytes   "elrun\x00ck"
//	uint32    version of the format, 1
//	uint32    length of the header
//	          the header as JSON
//	uint64    checksum of all before it
//	          the state, opaque
//	uint64    length of the state
//	uint64    checksum of the header's checksum and the state
//	8 bytes   "elrunend"
//
// The state is written without knowing its length first, so it can be streamed; the
// end of the file says whether it is complete. Checksums find damage, not forgery.
package checkpoint
