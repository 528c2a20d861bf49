"""A wheel that brings compiled kernels is of one Python and one kind of processor (`make wheel`); others are of any."""

from pathlib import Path

from setuptools import Distribution, setup


class Compiled(Distribution):
    def has_ext_modules(self) -> bool:
        return (Path(__file__).parent / "src" / "noria" / "kernels" / "compiled").exists()


setup(distclass=Compiled)
