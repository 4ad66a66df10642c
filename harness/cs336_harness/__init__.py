"""The checker: judges any decoder through ``adapters.py`` and knows nothing else about it."""
