"""Messages and reports that people paste, recognised by what they mean (`reading.read`)."""
