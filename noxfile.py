"""Environments for development: ``nox -s tests``; each is made from nothing."""

from __future__ import annotations

import nox

nox.options.sessions = ["tests"]


@nox.session(python=["3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """The suite; arguments go to pytest."""
    session.install("-e", ".[dev]")
    session.run("pytest", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", *session.posargs)


@nox.session(python="3.11")
def oldest(session: nox.Session) -> None:
    """The suite with the oldest dependencies that the package declares."""
    session.install("uv")
    session.run("uv", "pip", "install", "--resolution", "lowest-direct", "-e", ".[dev]")
    session.run("pytest", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", *session.posargs)


@nox.session
@nox.parametrize("cuda", ["cuda12", "cuda13"])
def gpu(session: nox.Session, cuda: str) -> None:
    """The tests that need a CUDA device."""
    session.install("-e", f".[dev,{cuda}]")
    session.run("pytest", "-m", "gpu", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The pages; every link has to exist."""
    session.install("-e", ".[docs]")
    session.run("mkdocs", "build", "--strict", "-q", "-d", session.create_tmp() + "/site")


@nox.session
def benchmarks(session: nox.Session) -> None:
    """One benchmark: ``nox -s benchmarks -- spot5.py``."""
    session.install("-e", ".[dev,benchmark]")
    session.run("python", *(f"benchmarks/{name}" for name in session.posargs[:1]), *session.posargs[1:])
