"""What a decoder costs: every weight and every matrix multiply, listed and added up. Imports no torch."""
