"""The ground floor: errors, missing values, records, clock, words. Imports nothing of flatout above it."""
