package nn

import "math"

// crossEntropy returns the loss, summed over the samples: log(sum exp(logits)) minus the logit of
// the right class. correct is the number of samples whose right class has the largest logit. The
// logits are overwritten by their gradient, softmax(logits) minus 1 at the right class. The largest
// logit is subtracted before exp, so that exp cannot overflow.
func crossEntropy(logits []float32, classes []int) (loss float64, correct int) {
	if len(classes) == 0 {
		return 0, 0
	}
	width := len(logits) / len(classes)
	for i, class := range classes {
		row := logits[i*width : (i+1)*width]
		l, best := sampleLoss(row, class)
		loss += l
		if best == class {
			correct++
		}
	}
	return loss, correct
}

// sampleLoss is crossEntropy for the logits of one sample. best is the class with the largest
// logit, the lowest of several such classes. Sums are in float64; the logits are overwritten by the
// softmax in float32.
func sampleLoss(row []float32, class int) (loss float64, best int) {
	for j, v := range row {
		if v > row[best] {
			best = j
		}
	}
	top, right := float64(row[best]), float64(row[class])
	total := 0.0
	for j, v := range row {
		e := math.Exp(float64(v) - top)
		total += e
		row[j] = float32(e)
	}
	scale := float32(1 / total)
	for j := range row {
		row[j] *= scale
	}
	// The gradient of the cross entropy with respect to the logits.
	row[class]--
	return math.Log(total) + top - right, best
}
