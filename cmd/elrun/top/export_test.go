package top

// Remembered returns the number of samples that m has.
func (m *Model) Remembered() (n int) {
	for _, samples := range m.past {
		n += len(samples)
	}
	return n
}
