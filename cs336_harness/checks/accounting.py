"""Accounting: parameters and FLOPs of the subject against an independent count."""
