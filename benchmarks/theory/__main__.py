"""``python -m benchmarks.theory``: see ``run.py``."""

from benchmarks.theory.run import main

if __name__ == "__main__":
    main()
