"""Names of objects in a store where tables have paths, and the requests that are made for them, through obstore."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from oocbe.errors import UnsupportedError, UsageError, install_hint
from oocbe.runtime.urls import url_of

Result = TypeVar("Result")

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://([^/]*)/*(.*?)/*", re.DOTALL)


@dataclass(frozen=True)
class ObjectPath:
    """The name of an object, or of a prefix, where tables have the path of a file or a folder.

    Attributes
    ----------
    root : scheme and bucket or host, such as ``s3://bucket``. key : the rest, without a slash at either end.
    """

    root: str
    key: str

    @classmethod
    def of(cls, url: str) -> ObjectPath:
        """The place that a URL names; UsageError where it names none below a bucket."""
        found = _URL.fullmatch(url)
        if found is None or not found[3]:
            raise UsageError(f"{url}: name a table in an object store, such as s3://bucket/folder/table")
        return cls(f"{found[1]}://{found[2]}", found[3])

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.root, f"{self.key}/{name}")

    def __str__(self) -> str:
        return f"{self.root}/{self.key}"

    @property
    def name(self) -> str:
        """The part after the last slash."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        """The part before the last slash."""
        return ObjectPath(self.root, self.key.rpartition("/")[0])

    def absolute(self) -> ObjectPath:
        """Itself: as for paths."""
        return self

    def is_dir(self) -> bool:
        """Whether there may be objects below it: stores have no folders, so whoever reads is told."""
        return True

    def is_symlink(self) -> bool:
        """There are none."""
        return False

    def read(self, size: int) -> bytes:
        """The first ``size`` bytes of the object, fewer where it is shorter.

        Raises
        ------
        FileNotFoundError : there is none. OSError : the store does not give it; its text says why.
        """
        if not size:
            return b""

        def get(store: Any) -> bytes:
            import obstore

            return bytes(obstore.get(store, self.key, options={"range": (0, size)}).bytes())

        return self._request(get)

    def read_range(self, start: int, stop: int) -> bytes:
        """Bytes of the object from one on up to another, which it has; errors as for :meth:`read`."""

        def get(store: Any) -> bytes:
            import obstore

            return bytes(obstore.get_range(store, self.key, start=start, end=stop))

        return self._request(get)

    def size(self) -> int:
        """Bytes of the object; errors as for :meth:`read`."""

        def head(store: Any) -> int:
            import obstore

            return int(obstore.head(store, self.key)["size"])

        return self._request(head)

    def below(self) -> Iterator[tuple[ObjectPath, int]]:
        """Objects whose names begin with this one's and a slash, and their bytes; OSError as for :meth:`read`."""

        def pages(store: Any) -> Any:
            import obstore

            return iter(obstore.list(store, prefix=f"{self.key}/"))

        listed = self._request(pages)
        while page := self._request(lambda _: next(listed, None)):
            for entry in page:
                yield ObjectPath(self.root, entry["path"]), int(entry["size"])

    def upload(self, file: Path, part_bytes: int, parts: int) -> None:
        """Write the object from a file, in parts of some bytes, so many at a time; OSError as for :meth:`create`."""

        def put(store: Any) -> None:
            import obstore

            obstore.put(store, self.key, file, chunk_size=part_bytes, max_concurrency=parts)

        self._request(put)

    def create(self, data: bytes | memoryview) -> None:
        """Write the object where there is none.

        Raises
        ------
        FileExistsError : there is one. OSError : the store does not take it; its text says why.
        """

        def put(store: Any) -> None:
            import obstore

            obstore.put(store, self.key, bytes(data), mode="create")

        self._request(put)

    def remove(self) -> None:
        """Remove the object; OSError where the store does not."""

        def delete(store: Any) -> None:
            import obstore

            obstore.delete(store, self.key)

        self._request(delete)

    def _request(self, ask: Callable[[Any], Result]) -> Result:
        store = _store(self.root)
        from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError

        try:
            return ask(store)
        except (NotFoundError, FileNotFoundError):
            raise FileNotFoundError(2, "there is no such object", str(self)) from None
        except AlreadyExistsError:
            raise FileExistsError(17, "there is such an object already", str(self)) from None
        except (BaseError, OSError, ValueError, NotImplementedError) as error:
            raise OSError(5, _first_line(error), str(self)) from None


Place: TypeAlias = Path | ObjectPath
"""Where a table's files are read: below a folder, or below a prefix in an object store."""


def is_url(path: object) -> bool:
    """Whether text, or a path that was made of it, names something in an object store."""
    return isinstance(path, str | Path) and url_of(path) is not None


def place_named(path: str | Path) -> Place:
    """What a path or a URL names; a URL that was made a path (``s3:/bucket/key``) is one as well."""
    url = url_of(path)
    return Path(path) if url is None else ObjectPath.of(url)


@cache
def _store(root: str) -> Any:
    """The store of a bucket or host, with what the environment says of it (``AWS_REGION`` and the like).

    Raises
    ------
    UnsupportedError : obstore is not installed, or has no driver.
    """
    try:
        from obstore.store import from_url
    except ImportError as error:
        raise UnsupportedError(
            f"{root}: tables in object stores need obstore, which is not installed ({error}); {install_hint('objects')}"
        ) from None
    web: Any = {"client_options": {"allow_http": True}} if root.startswith("http://") else {}
    try:
        return from_url(root if root.partition("://")[2] else f"{root}/", **web)
    except Exception as error:
        raise UnsupportedError(f"{root}: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    text = str(getattr(error, "strerror", None) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__
