package spec

// Version is the version of elrun. CHANGELOG.md, Containerfile and the Python package have the same
// number, which a test checks, and scripts/deb/build.sh reads it here.
const Version = "0.2.0"
