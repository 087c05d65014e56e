"""``python -m benchmarks.zoo``: see ``run.py``."""

from benchmarks.zoo.run import main

if __name__ == "__main__":
    main()
