"""``python -m benchmarks.cosine``: see ``run.py``."""

from benchmarks.cosine.run import main

if __name__ == "__main__":
    main()
