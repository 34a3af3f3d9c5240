"""Records in, text out. No reporter measures, decides or reads a file."""
