"""Facts in, one root cause out. Rules are pure; each is a file with a code, and a page in each language."""
