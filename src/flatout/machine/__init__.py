"""Facts about this machine, by layer: what is there, what is missing and why. Reads only, changes nothing."""
