"""Facts about this machine, layer by layer, with reasons for missing ones. Only reads, changes nothing."""
