"""``python -m benchmarks.trainability``: see ``run.py``."""

from benchmarks.trainability.run import main

if __name__ == "__main__":
    main()
