"""What a decoder costs, as a report for a person or a program. Imports no torch."""
