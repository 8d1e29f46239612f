"""A trained network made ready for use: its weights read, its fastest form found, and both written to a folder."""
