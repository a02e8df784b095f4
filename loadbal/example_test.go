package loadbal_test

import (
	"fmt"

	"github.com/elrun/elrun/loadbal"
)

// Shares that are as equal as whole numbers allow.
func ExampleEqual() {
	fmt.Println(loadbal.Equal(32, 3))
	// Output: [11 11 10]
}

func ExampleNames() {
	fmt.Println(loadbal.Names()[0])
	// Output: lbbsp-cpu
}

// Ways to predict speeds.
func ExampleVariants() {
	for _, name := range loadbal.Variants() {
		if _, err := loadbal.New(name); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(len(loadbal.Variants()) > 1)
	// Output: true
}

// costs are those of a rank that takes three times as long as the other.
func costs() []loadbal.Cost { return []loadbal.Cost{{Each: 3, Fixed: 0}, {Each: 1, Fixed: 4}} }

// Equal shares take as long as the slower rank.
func ExampleSlowest() {
	fmt.Println(loadbal.Slowest(costs(), []int{16, 16}))
	// Output: 48
}

// No whole shares take less time than this.
func ExampleLevel() {
	fmt.Println(loadbal.Level(costs(), 32))
	// Output: 27
}

// Where policies end if the costs stay.
func ExampleSettled() {
	fmt.Println(loadbal.Settled("equal", costs(), 32), loadbal.Settled("auto", costs(), 32))
	// Output: [16 16] [9 23]
}

// Eight microbatches in 2 ms are 4000 a second, 250 us each.
func ExampleSpeed() {
	speed := loadbal.Speed(8, 2000)
	fmt.Println(speed/loadbal.SpeedUnit, loadbal.Pace(speed))
	// Output: 4000 250000
}

// The inverse of Speed, in nanoseconds a microbatch.
func ExamplePace() {
	fmt.Println(loadbal.Pace(4000 * loadbal.SpeedUnit))
	// Output: 250000
}

// A set of microbatches is a bitmap.
func ExampleNewSet() {
	s := loadbal.NewSet(70)
	s.Add(3)
	s.Add(69)
	fmt.Println(len(s) == loadbal.Words(70), s[0], s[1])
	// Output: true 8 32
}

func ExampleWords() {
	fmt.Println(loadbal.Words(64), loadbal.Words(65))
	// Output: 1 2
}

// list prints the microbatches 0 to 7 of each share.
func list(shares []loadbal.Set) {
	for _, s := range shares {
		fmt.Printf("%08b ", s[0])
	}
	fmt.Println()
}

// The same where rank 1 is to have six.
func ExampleAssignTo() {
	shares, _ := loadbal.AssignTo([]loadbal.Set{nil, nil}, []int{2, 6}, 8)
	list(shares)
	// Output: 00000011 11111100
}
