"""Pure: journals and samples in, attribution and statistics out. No clock, no files."""
