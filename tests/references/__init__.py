"""Implementations that nobody here wrote: compared with the oracle and the decoder, and judged as subjects."""
