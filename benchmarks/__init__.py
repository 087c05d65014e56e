"""Measurements and their records: one folder a question, the records beside what writes them."""
