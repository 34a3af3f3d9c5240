"""Before a profile is written: whole runs, plain and tuned, and whether the same is learned."""
