// Package browser tests the page of a job in a browser: go test ./... in its folder, or make test-browser, which fetches what it
// needs. It has no code but tests.
//
// The pictures of docs/dashboard.md are those of the tests; go test -update writes them.
package browser
