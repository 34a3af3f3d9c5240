"""The lowest folder: errors, missing values, records, clock, words. Imports nothing else of flatout."""
