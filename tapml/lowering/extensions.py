"""Files of the user that register converters, kernels and schedules: what they consist of, and how they are loaded.

A file is run from the very bytes that its digest is of, so that what a result says was executed was executed.
"""

from __future__ import annotations

import hashlib
import linecache
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from modulefinder import ModuleFinder
from pathlib import Path
from types import CodeType

from tapml.errors import ExtensionError

_SHOWN = 12
"""Hex digits of a digest that are shown."""
_INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib"))


@dataclass(frozen=True)
class Extension:
    """A file as it was loaded.  ``digest``: of its content and that of the local modules that it imports (SHA-256, hex)."""

    file: Path
    digest: str

    def __str__(self) -> str:
        return f"{self.file.name}, sha256 {self.digest[:_SHOWN]}"


def parts_of(file: Path) -> tuple[Path, ...]:
    """The file, and the modules beside or below it that it imports, directly or not, wherever the imports stand.

    What does not parse has no imports, and neither has a file that is not there.
    """
    folder = str(file.resolve().parent)
    finder = ModuleFinder(path=[folder])
    found = [file.resolve()]
    for module in _visited(finder, file):
        path = Path(module).resolve()
        if path not in found and not any(path.is_relative_to(place) for place in _INSTALLED):
            found.append(path)
    return (found[0], *sorted(found[1:]))


def _visited(finder: ModuleFinder, file: Path) -> list[str]:
    with suppress(SyntaxError, ValueError, OSError, RecursionError):  # ValueError: a byte of zero
        finder.run_script(str(file.resolve()))
    found = (getattr(module, "__file__", None) for module in finder.modules.values())
    return [file for file in found if file]


def digest_of(file: Path, content: bytes | None = None) -> str:
    """SHA-256 of a file (``content``: what was read of it) and of the local modules that it imports.

    Raises ``OSError`` when the file cannot be read.
    """
    first, *others = parts_of(file)
    digest = hashlib.sha256(first.read_bytes() if content is None else content)
    for path in others:
        try:
            digest.update(b"\0" + str(path.relative_to(first.parent)).encode() + b"\0" + path.read_bytes())
        except OSError:  # it has gone since: the import will say so
            continue
    return digest.hexdigest()


_loading: list[Extension] = []


def loading() -> Extension | None:
    """The file that is being run just now."""
    return _loading[-1] if _loading else None


def load(file: str) -> Extension:
    """Run a file.

    Raises :class:`ExtensionError` with the line when it is missing, does not parse, or raises.
    """
    path = Path(file).resolve()
    try:
        content = path.read_bytes()
    except OSError:
        raise ExtensionError(
            f"expected a Python file with converters, found none at {file}",
            hint="give --with the path of a .py file",
        ) from None
    name = f"tapml_extension_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None:
        raise ExtensionError(
            f"expected a Python file with converters, found {file}", hint="give --with the path of a .py file"
        )
    code = _compiled(content, path, file)
    extension = Extension(path, digest_of(path, content))
    module = module_from_spec(spec)
    sys.modules[name] = module
    _loading.append(extension)
    try:
        with _beside(path.parent):
            exec(code, module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        line = _line(error, path)
        raise ExtensionError(
            f"{file}{line} raised {type(error).__name__}: {error}", hint="it has to load in plain Python first"
        ) from error
    finally:
        _loading.remove(extension)
    _require_own_modules(path)
    return extension


def _compiled(content: bytes, path: Path, file: str) -> CodeType:
    try:
        code = compile(content, str(path), "exec", dont_inherit=True)
        text = content.decode()
    except SyntaxError as error:
        text = " ".join((error.text or "").split())
        raise ExtensionError(
            f"{file}:{error.lineno or 1}: {type(error).__name__}: {error.msg}" + (f": `{text}`" if text else ""),
            hint="it has to load in plain Python first",
        ) from error
    except ValueError as error:
        raise ExtensionError(f"{file} is no Python: {error}", hint="give --with the path of a .py file") from error
    # TVMScript reads a function's source from here: the text that runs, whatever the file says by then
    linecache.cache[str(path)] = (len(content), None, text.splitlines(keepends=True), str(path))
    return code


@contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Modules beside the file can be imported, first of all while it is loaded, last of all after that.

    No bytecode is kept of them: it is told from old by the second in which a file was saved, and saves can be quicker.
    """
    place, before = str(folder), sys.dont_write_bytecode
    sys.path.insert(0, place)
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
        sys.path.remove(place)
        if place not in sys.path:
            sys.path.append(place)


def _line(error: BaseException, path: Path) -> str:
    """``:12`` of the innermost line of the file that an error came through, or of the module that does not parse."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return f":{lines[-1]}" if lines else ""


def _require_own_modules(path: Path) -> None:
    """Another file's folder may have had a module of the same name, which Python keeps: nobody would notice."""
    for part in parts_of(path)[1:]:
        name = ".".join(part.relative_to(path.parent).with_suffix("").parts).removesuffix(".__init__")
        found = getattr(sys.modules.get(name), "__file__", None)
        if found is not None and Path(found).resolve() != part:
            raise ExtensionError(
                f"{path.name} imports {name}, expected {part}, found {found}, which was loaded before",
                hint="give one of the two modules another name",
            )


def digests(files: Sequence[str]) -> list[str]:
    """:func:`digest_of` each; empty for what cannot be read."""
    found = []
    for file in files:
        try:
            found.append(digest_of(Path(file)))
        except OSError:
            found.append("")
    return found
