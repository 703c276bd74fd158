"""Object names as counterparts of paths, and the requests for objects, through obstore."""

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
    """Name of an object, or of a prefix: the counterpart of the path of a file or a folder.

    root : scheme and bucket or host, such as ``s3://bucket``. key : the rest, without a slash at either end.
    """

    root: str
    key: str

    @classmethod
    def of(cls, url: str) -> ObjectPath:
        """The place of a URL; UsageError if it has no key below a bucket."""
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
        """Itself; counterpart of the method of paths."""
        return self

    def is_dir(self) -> bool:
        """True: stores have no folders, so that only reading shows whether objects exist below this name."""
        return True

    def is_symlink(self) -> bool:
        """False: stores have no links."""
        return False

    def read(self, size: int) -> bytes:
        """The first ``size`` bytes of the object, fewer if it is shorter.

        Raises FileNotFoundError: no such object; OSError: the store refuses; the text states the reason.
        """
        if not size:
            return b""
        return self._request(lambda of, store: bytes(of.get(store, self.key, options={"range": (0, size)}).bytes()))

    def read_range(self, start: int, stop: int) -> bytes:
        """Bytes ``start`` to ``stop`` of the object, the end excluded, which must exist; errors as for :meth:`read`."""
        return self._request(lambda of, store: bytes(of.get_range(store, self.key, start=start, end=stop)))

    def size(self) -> int:
        """Bytes of the object; errors as for :meth:`read`."""
        return self._request(lambda of, store: int(of.head(store, self.key)["size"]))

    def below(self) -> Iterator[tuple[ObjectPath, int]]:
        """Objects whose names begin with this one's and a slash, and their bytes; OSError as for :meth:`read`."""
        listed = self._request(lambda of, store: iter(of.list(store, prefix=f"{self.key}/")))
        while page := self._request(lambda *_: next(listed, None)):
            for entry in page:
                yield ObjectPath(self.root, entry["path"]), int(entry["size"])

    def upload(self, file: Path, part_bytes: int, parts: int) -> None:
        """Write the object from a file, in parts of ``part_bytes``, ``parts`` at a time; OSError as :meth:`create`."""
        options = {"chunk_size": part_bytes, "max_concurrency": parts}
        self._request(lambda of, store: of.put(store, self.key, file, **options))

    def create(self, data: bytes | memoryview) -> None:
        """Write a new object; FileExistsError: there is one; OSError, with the reason: the store refuses."""
        self._request(lambda of, store: of.put(store, self.key, bytes(data), mode="create"))

    def remove(self) -> None:
        """Remove the object; OSError if the store refuses."""
        self._request(lambda of, store: of.delete(store, self.key))

    def _request(self, ask: Callable[[Any, Any], Result]) -> Result:
        """The result of a call with the module obstore and the store; errors as for :meth:`create` and :meth:`read`."""
        store = _store(self.root)
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError

        try:
            return ask(obstore, store)
        except (NotFoundError, FileNotFoundError):
            raise FileNotFoundError(2, "there is no such object", str(self)) from None
        except AlreadyExistsError:
            raise FileExistsError(17, "there is such an object already", str(self)) from None
        except (BaseError, OSError, ValueError, NotImplementedError) as error:
            raise OSError(5, _first_line(error), str(self)) from None


Place: TypeAlias = Path | ObjectPath
"""Location of a table's files: a folder, or a prefix in an object store."""


def is_url(path: object) -> bool:
    """Whether text, or a path made from it, is the URL of an object or prefix."""
    return isinstance(path, str | Path) and url_of(path) is not None


def place_named(path: str | Path) -> Place:
    """The place of a path or a URL; a URL converted to a path (``s3:/bucket/key``) counts as a URL."""
    url = url_of(path)
    return Path(path) if url is None else ObjectPath.of(url)


@cache
def _store(root: str) -> Any:
    """The store of a bucket or host, configured by the environment (``AWS_REGION`` and the like).
    Raises UnsupportedError if obstore is not installed, or has no driver."""
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
