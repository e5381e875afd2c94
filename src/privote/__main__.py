"""Run the command line as ``python -m privote``."""

from privote.cli import main

if __name__ == "__main__":
    main()
