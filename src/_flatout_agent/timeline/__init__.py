"""What happened when: the step clock, the events it reads, batches on their way, steps that belong together."""
