"""``python -m benchmarks.medium``: see ``run.py``."""

from benchmarks.medium.run import main

if __name__ == "__main__":
    main()
