"""Reads what people paste: any text in, `Facts` out (`reader.read`). Pure: no file, no machine, no exception."""
