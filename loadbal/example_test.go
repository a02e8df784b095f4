package loadbal_test

import (
	"fmt"

	"github.com/elrun/elrun/loadbal"
)

func ExampleNames() {
	fmt.Println(loadbal.Names()[0])
	// Output: lbbsp-cpu
}

// New knows every variant of lbbsp-cpu.
func ExampleVariants() {
	for _, name := range loadbal.Variants() {
		if _, err := loadbal.New(name); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(len(loadbal.Variants()) > 1)
	// Output: true
}

// costs returns the costs of two ranks. The first rank takes three times as long for a microbatch,
// and the second rank has a fixed part.
func costs() []loadbal.Cost { return []loadbal.Cost{{Each: 3, Fixed: 0}, {Each: 1, Fixed: 4}} }

// With equal shares the step takes as long as the slower rank.
func ExampleSlowest() {
	fmt.Println(loadbal.Slowest(costs(), []int{16, 16}))
	// Output: 48
}

// Eight microbatches in 2 ms are 4000 per second, or 250 us each.
func ExampleSpeed() {
	speed := loadbal.Speed(8, 2000)
	fmt.Println(speed/loadbal.SpeedUnit, loadbal.Pace(speed))
	// Output: 4000 250000
}

// Pace converts a speed to nanoseconds per microbatch.
func ExamplePace() {
	fmt.Println(loadbal.Pace(4000 * loadbal.SpeedUnit))
	// Output: 250000
}
