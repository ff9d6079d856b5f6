"""Does the second core pay on Spark? `speedup.py --engine spark`, under a name of its own."""

import sys

from speedup import main

if __name__ == "__main__":
    main(["--engine", "spark", *sys.argv[1:]])
