"""The search carried out: children, their answers, the journal on the disk, the profile that is left."""
