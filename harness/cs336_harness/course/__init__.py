"""What an instructor hands out: the blank repository, and the closing drills."""
