"""Workers that live over the end of an epoch, where fresh ones would give the same batches."""
