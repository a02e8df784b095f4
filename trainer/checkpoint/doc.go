// Package checkpoint reads and writes the files of a training job: checkpoints, from which the
// job can resume, and parameters as safetensors for other programs.
//
// A checkpoint is one file, step-000000001200.elrun in the job's folder. The file gets this name
// only when it is complete and on the disk, so a crash at any instant leaves the older
// checkpoints intact:
//
//	path, err := checkpoint.Write(dir, header, state.Save)
//	err = checkpoint.Keep(dir, 3, header.Step)
//
// To resume, load the newest checkpoint that is undamaged and fits the job:
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
// The length of the state follows the state, so that a writer can stream it. The end of the file
// shows whether it is complete. Checksums detect damage, not forgery.
package checkpoint
