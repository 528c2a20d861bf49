"""`python -m noria`: the same as the `noria` command."""

from noria.cli.main import run

if __name__ == "__main__":
    run()
