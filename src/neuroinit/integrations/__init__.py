"""neuroinit inside other people's trainers: one file per trainer, each behind its extra."""
