"""The subject: found, imported, called and built, and every way in which it can say no."""
