//go:build race

package collective_test

// racing says that the tests run under the race detector.
const racing = true
