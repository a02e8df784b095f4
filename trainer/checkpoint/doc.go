// Package checkpoint reads and writes the files of a training job: checkpoints, from which a job
// can resume, and parameters for other programs. Both are safetensors files
// (https://github.com/huggingface/safetensors), which PyTorch and NumPy can open.
//
// A checkpoint is one file, step-000000001200.safetensors in the job's folder. The file gets this
// name only when it is complete and on the disk, so a crash at any instant leaves the older
// checkpoints intact:
//
//	path, err := checkpoint.Write(dir, header, tensors)
//	err = checkpoint.Keep(dir, 3, header.Step)
//
// To resume, load the newest checkpoint that is undamaged and fits the job:
//
//	c, problems, err := checkpoint.Latest(dir, fits)  // problems: skipped files
//	defer c.Close()
//	err = c.Load(tensors)
//
// A loop over elastic.Group.Steps has a State, which does all of this by itself: see NewState.
//
// # The metadata of a checkpoint
//
// A checkpoint is a safetensors file whose metadata has three entries:
//
//	elrun.version    version of the entries, "2"
//	elrun.header     the Header as JSON
//	elrun.checksum   XXH64 of the whole file, in 16 hexadecimal digits; these digits count as
//	                 zeros in the sum
//
// The offsets of the tensors cover the data without holes, so the length of the file shows whether
// it is complete. The checksum detects damage, not forgery.
package checkpoint
