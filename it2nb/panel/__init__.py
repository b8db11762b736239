"""Between a session and the pages that show it, whatever carries the messages."""
