"""``python -m benchmarks.methods``: see ``run.py``."""

from benchmarks.methods.run import main

if __name__ == "__main__":
    main()
