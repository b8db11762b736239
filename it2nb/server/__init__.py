"""One session from anywhere: its server, and the client's side of it."""
