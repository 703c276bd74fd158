"""``python -m oocbe``: the command line."""

from oocbe.cli.main import main

if __name__ == "__main__":
    main()
