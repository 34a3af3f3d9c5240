"""What a trial needs beside the settings: where its batches come from, its memory, what the script consists of."""
