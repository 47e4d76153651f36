"""Finds and loads a function that a document names: `net.py:make` in a file, `mypackage.net:make` in a package.

A single file is loaded by its path, so that no other file in its folder hides a module of Python or of an installed
package. A file in a folder with `__init__.py` is a module of that package, which may import its other modules. Nothing
is written to either folder. A digest of the single file, or of all Python files of the package, tells whether the code
has changed since an earlier run.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import linecache
import sys
import traceback
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, ModuleSpec, SourceFileLoader
from importlib.metadata import entry_points
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from trainers.errors import MissingDataError, SpecError
from trainers.spelling import hint
from trainers.values import shown

GROUP = "driftline.modules"
"""Entry points of installed packages whose functions a service may call; the value is a module or a package."""

_FORM = 'must be "file.py:function" or "package.module:function"'
_SUFFIX = ".py"
_INIT = "__init__.py"
_files: set[str] = set()  # names of the modules of single files
_own: dict[str, str] = {}  # name of a package that was loaded by its path -> its digest


@dataclass(frozen=True)
class FunctionSource:
    """Where a function is.

    Args:
        place: path of a file, or dotted name of a module.
        name: of the function or class in it.
    """

    place: str
    name: str

    @property
    def in_file(self) -> bool:
        """Whether the document names a file."""
        return self.place.endswith(_SUFFIX)

    def files(self, path: str) -> Sequence[Path]:
        """The file of a module without a package, or all Python files of its package.

        Args:
            path: dotted path of the name in the document, for errors.

        Raises:
            MissingDataError: there is no such file.
            SpecError: there is no such module, or it has no source.
        """
        if self.in_file:
            file = _file(self.place, path)
            package = _package(file)
            return (file,) if package is None else sorted(package.rglob(f"*{_SUFFIX}"))
        spec = _installed(self.place.partition(".")[0])
        if spec is not None and spec.origin is None:  # a folder without __init__.py
            spec = find_spec(self.place)
        if spec is None or spec.origin is None or not spec.origin.endswith(_SUFFIX):
            came = f"got {shown(self.place)}: install its package, or name a file, {_SUFFIX} included"
            raise SpecError(f"{path} must name a module that is installed here, {came}", path)
        file = Path(spec.origin)
        return (file,) if file.name != _INIT else sorted(file.parent.rglob(f"*{_SUFFIX}"))


def source_of(value: Any, path: str) -> FunctionSource:
    """Reads "place:name".

    Args:
        value: the value from the document.
        path: its dotted path.

    Raises:
        SpecError: the value has another form.
    """
    module, colon, name = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    dotted = all(part.isidentifier() for part in module.split("."))
    if not colon or not name.isidentifier() or not (dotted or module.endswith(_SUFFIX)) or "\0" in module:
        raise SpecError(f"{path} {_FORM}, got {shown(value)}", path)
    return FunctionSource(module, name)


def beside(value: Any, folder: Path) -> Any:
    """The name of a function with the full path of its file, if the name has a path relative to a folder.

    A module that is not installed, but lies in the folder, is named by its file, too. Other names stay unchanged.

    Args:
        value: the value from the document.
        folder: the folder of the study's file.
    """
    try:
        source = source_of(value, "")
        if not source.in_file and _installed(source.place.partition(".")[0]) is not None:
            return value
        filename = source.place if source.in_file else source.place.replace(".", "/") + _SUFFIX
        file = folder / filename
        return f"{file.resolve()}:{source.name}" if file.is_file() else value
    except (SpecError, OSError):
        return value


def located(value: Any, folder: Path) -> tuple[Any, str | None]:
    """(the name as `beside` returns it, the digest of the file's code; None for a module, or if there is no file).

    Args:
        value: the value from the document, not checked yet.
        folder: the folder of the study's file.
    """
    name = beside(value, folder)
    try:
        source = source_of(name, "")
        return name, digest(source, "") if source.in_file else None
    except (SpecError, MissingDataError):  # reported by `parse` of the model
        return name, None


def digest(source: FunctionSource, path: str) -> str:
    """The SHA-256 of the code: of the file, or of the names and digests of all Python files of the package.

    Args:
        source: where the function is.
        path: dotted path of its name in the document.
    """
    files = source.files(path)
    try:
        digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    except OSError as error:
        raise SpecError(f"{path} must name code that can be read, got {error.filename}: {error.strerror}") from error
    if len(files) == 1:
        return digests[0]
    top = files[0].parent  # the package's own __init__.py is the first
    top = next(folder for folder in (top, *top.parents) if all(file.is_relative_to(folder) for file in files))
    lines = [f"{sha256}  {file.relative_to(top)}\n" for sha256, file in zip(digests, files, strict=True)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def stamp(value: Any) -> Hashable:
    """A value that changes when the code changes; None if there is no code.

    Args:
        value: the name of a function, not checked yet.
    """
    try:
        files = source_of(beside(value, Path.cwd()), "").files("")
        return tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    except (SpecError, MissingDataError, OSError):  # reported by `load`
        return None


def load(source: FunctionSource, sha256: str, path: str) -> Callable[..., Any]:
    """Loads a function.

    Args:
        source: where it is.
        sha256: digest of its code; code that was loaded with another digest is loaded again.
        path: dotted path of its name in the document.

    Raises:
        SpecError: the code fails when it is loaded, or has no such function.
    """
    try:
        module = _loaded(source, sha256, path)
    except (SpecError, MissingDataError):
        raise
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        where = f"{source.place} fails when it is imported{_line(error, source)}"
        raise SpecError(f"{path}: {where}: {said(error)}", path) from error
    functions = {
        name: value
        for name, value in vars(module).items()
        if callable(value) and (source.in_file or _of(value, module))
    }
    if source.name not in functions:
        raise SpecError(
            f"{path}: {source.place} has no function {shown(source.name)}: {hint(source.name, functions)}", path
        )
    function: Callable[..., Any] = functions[source.name]
    return function


def checked_arguments(
    function: Callable[..., Any], arguments: Mapping[str, Any], offered: Mapping[str, Any], path: str
) -> dict[str, Any]:
    """The arguments of a call: those of a document, and the offered ones for which the function has a parameter.

    Args:
        function: the function.
        arguments: from the document.
        offered: values for parameters that the document leaves out.
        path: dotted path of the object with the arguments.

    Raises:
        SpecError: the function takes no such argument, or needs another one.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # of a class without a signature
        return dict(arguments)
    named = [
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        for name in arguments:
            if name not in named:
                takes = hint(name, named) if named else "it takes none"
                raise SpecError(f"{path}: {function.__name__} takes no argument {shown(name)}: {takes}", path)
    passed = {**{name: value for name, value in offered.items() if name in named}, **arguments}
    for name, parameter in parameters.items():
        if (
            parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            and name not in passed
        ):
            raise SpecError(f"{path}.{name} must be given: an argument of {function.__name__}", f"{path}.{name}")
    return passed


def loaded_by_path() -> list[ModuleType]:
    """The modules of single files and of packages that were found by a path: other processes cannot import them."""
    return [module for name, module in sys.modules.items() if name in _files or name.partition(".")[0] in _own]


def require_declared(value: Any, path: str) -> None:
    """Checks that a service may call a function: one of a module that an installed package declares.

    Args:
        value: the name of the function.
        path: its dotted path.

    Raises:
        SpecError: it is in a file, or in a module that no entry point of `GROUP` names.
    """
    source = source_of(value, path)
    modules = sorted({point.value for point in entry_points(group=GROUP)})
    if source.in_file or not any(f"{source.place}.".startswith(f"{module}.") for module in modules):
        allowed = f"one of {', '.join(modules)}" if modules else "and none does here"
        raise SpecError(
            f"{path} must name a module that an installed package declares under {GROUP} ({allowed}), got "
            f"{shown(value)}: a service runs no other code; ask its operator, or run the study on your own computer",
            path,
        )


def said(error: BaseException) -> str:
    """An error of a user's code in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


def _file(filename: str, path: str) -> Path:
    file = Path(filename)
    try:
        if file.is_file():
            return file.resolve()
    except OSError:  # a name that no file can have
        pass
    where = "" if file.is_absolute() else " in the current directory or beside the study's file"
    raise MissingDataError(f"{path}: no file {shown(filename)}{where}: give its path", path)


def _package(file: Path) -> Path | None:
    """The folder of the package to which a file belongs; None for a file by itself."""
    folders = []
    for folder in file.parents:
        if not (folder / _INIT).is_file():
            break
        folders.append(folder)
    return folders[-1] if folders else None


def _installed(name: str) -> ModuleSpec | None:
    """The spec of a module or package that other processes find too.

    None for a module in the folder of a script or a notebook, which Python searches first.
    """
    specs = (finder.find_spec(name, None) for finder in sys.meta_path)  # ignores what sys.modules has
    spec = next((spec for spec in specs if spec is not None), None)
    if spec is not None and spec.origin is not None and not sys.flags.safe_path:
        file = Path(spec.origin)
        folder = file.parent.parent if file.name == _INIT else file.parent
        if folder == Path(sys.path[0]).resolve() and not any(Path(entry) == folder for entry in sys.path[1:]):
            return None
    return spec


def _loaded(source: FunctionSource, sha256: str, path: str) -> ModuleType:
    if not source.in_file:
        if (top := source.place.partition(".")[0]) in _own:
            _forget(top)
        return importlib.import_module(source.place)
    file = _file(source.place, path)
    package = _package(file)
    return _alone(file, sha256) if package is None else _within(package, file, sha256, path)


def _alone(file: Path, sha256: str) -> ModuleType:
    """The module of a single file, under a unique name."""
    name = f"driftline_{file.stem}_{sha256[:12]}" if file.stem.isidentifier() else f"driftline_{sha256[:12]}"
    if name not in sys.modules:
        module = ModuleType(name)
        module.__file__ = str(file)
        code = compile(file.read_bytes(), str(file), "exec")
        linecache.checkcache(str(file))
        sys.modules[name] = module  # dataclasses look themselves up there
        _files.add(name)
        try:
            exec(code, vars(module))
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _within(package: Path, file: Path, sha256: str, path: str) -> ModuleType:
    """The module of a file in a package, which is imported by its path, and again if its code has changed."""
    top = package.name
    if _installed(top) is not None:
        raise SpecError(f"{path}: the folder {top} has the name of an installed module: rename it, or install it", path)
    parts = file.relative_to(package.parent).with_suffix("").parts
    dotted = ".".join(parts[:-1] if file.name == _INIT else parts)
    if _own.get(top) != sha256:
        _forget(top)
        spec = _finder(package.parent).find_spec(top)
        if spec is None or spec.loader is None:
            raise ImportError(f"no package {top}")
        for folder in (package, *(path for path in package.rglob("*") if path.is_dir())):
            sys.path_importer_cache[str(folder)] = _finder(folder)
        module = module_from_spec(spec)
        sys.modules[top], _own[top] = module, sha256
        try:
            spec.loader.exec_module(module)
        except BaseException:
            _forget(top)
            raise
    return importlib.import_module(dotted)


class _SourceLoader(SourceFileLoader):
    """Neither writes bytecode beside the source nor reads it: bytecode misses a change of a file within a second."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def _finder(folder: Path) -> FileFinder:
    return FileFinder(str(folder), (ExtensionFileLoader, EXTENSION_SUFFIXES), (_SourceLoader, [_SUFFIX]))


def _forget(top: str) -> None:
    """Removes a package from sys.modules, so that it is imported again."""
    _own.pop(top, None)
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{top}.")]:
        del sys.modules[name]
    importlib.invalidate_caches()


def _of(function: Any, module: ModuleType) -> bool:
    """Whether a function is defined in a module's own package, not only imported there, as os.system would be."""
    top = module.__name__.partition(".")[0]
    return bool(str(getattr(function, "__module__", "")).partition(".")[0] == top)


def _line(error: BaseException, source: FunctionSource) -> str:
    """Where in the file an error arose: " in line 3"."""
    name = Path(source.place).name if source.in_file else f"{source.place.rpartition('.')[2]}{_SUFFIX}"
    if isinstance(error, SyntaxError):
        return f" in line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name == name]
    return f" in line {lines[-1]}" if lines else ""
