"""neuroinit inside other people's trainers: one file a trainer, each behind its extra."""
