"""`python -m noria` runs the `noria` command."""

from noria.cli.main import run

if __name__ == "__main__":
    run()
