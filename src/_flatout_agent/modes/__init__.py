"""What the agent does in a run: put a profile on, carry out trials, tune while training goes on, compare, look deep."""
