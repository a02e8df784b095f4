package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
)

// Table has samples with few features that are not 0. Each sample has the Euclidean length 1.
type Table struct {
	Dim     int       // number of features
	Targets []float32 // by sample; 1 and -1 for the support vector machine
	width   int       // features that are not 0, of each sample
	columns []int32   // the indices of these, one sample after the other
	values  []float32
}

// Row returns the features of sample i.
func (t *Table) Row(i int) (columns []int32, values []float32) {
	return t.columns[i*t.width : (i+1)*t.width], t.values[i*t.width : (i+1)*t.width]
}

// dot returns the product of a vector and sample i.
func (t *Table) dot(w []float64, i int) (sum float64) {
	columns, values := t.Row(i)
	for j, c := range columns {
		sum += w[c] * float64(values[j])
	}
	return sum
}

// add adds sample i times f to a vector.
func (t *Table) add(w []float64, i int, f float64) {
	columns, values := t.Row(i)
	for j, c := range columns {
		w[c] += f * float64(values[j])
	}
}

// Generate returns samples of normally distributed features. Their labels are those of a linear model,
// with noise.
func Generate(samples, dim int) *Table {
	t := &Table{Dim: dim, Targets: make([]float32, samples), width: dim, columns: make([]int32, samples*dim), values: make([]float32, samples*dim)}
	for i := range samples {
		r := rand.New(rand.NewPCG(7, uint64(i)))
		columns, values := t.Row(i)
		norm, y := 0.0, 0.0
		for k := range values {
			v := r.NormFloat64()
			columns[k], values[k] = int32(k), float32(v)
			norm += v * v
			y += v * math.Sin(float64(3*k+1))
		}
		t.Targets[i] = 1
		if y+0.3*r.NormFloat64() < 0 {
			t.Targets[i] = -1
		}
		for k := range values {
			values[k] /= float32(math.Sqrt(norm))
		}
	}
	return t
}

// Features of a flight: a constant, its hour, its distance, and both together.
const (
	hours     = 24
	distances = 16
	flightDim = 1 + hours + distances + hours*distances
)

// ReadFlights reads a JSON file with the delay (in minutes), distance (in miles) and time of departure
// (in hours) of flights, as vega-datasets has it. The target is 1 for a delay of more than 15 minutes.
func ReadFlights(file string) (*Table, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: \"make data\" fetches the flights into data", err)
	}
	var flights []struct{ Delay, Distance, Time float64 }
	if err := json.Unmarshal(b, &flights); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(flights) == 0 {
		return nil, fmt.Errorf("%s has no flights", file)
	}
	t := &Table{Dim: flightDim, width: 4}
	for _, f := range flights {
		hour := min(max(int(f.Time), 0), hours-1)
		distance := min(max(int(2*math.Log2(max(f.Distance, 1)/32)), 0), distances-1)
		t.columns = append(t.columns, 0, int32(1+hour), int32(1+hours+distance), int32(1+hours+distances+hour*distances+distance))
		t.values = append(t.values, 0.5, 0.5, 0.5, 0.5)
		target := float32(-1)
		if f.Delay > 15 {
			target = 1
		}
		t.Targets = append(t.Targets, target)
	}
	return t, nil
}
