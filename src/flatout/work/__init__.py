"""Programs for a child process under the user's own interpreter: files to run, not modules to import."""
