"""Functions of the workspace's own Python files, named `file.py:function`: verifiers, and rules that name tasks and runs."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Fails = Callable[[str], Exception]
"""Makes the error to raise of one line that says what is wrong."""


def code_of(path: Path, fails: Fails) -> bytes:
    """The bytes of such a file."""
    try:
        return path.read_bytes()
    except OSError as problem:
        raise fails(f"{path} cannot be read ({problem.strerror})") from None


def function_of(path: Path, code: bytes, function: str, fails: Fails) -> Callable[..., Any]:
    """A function of a file whose bytes were read; the file is run once for each content that it has."""
    module_name = f"nightshift_entry_{hashlib.sha256(str(path).encode() + code).hexdigest()[:16]}"
    module = sys.modules.get(module_name)
    if module is None:
        spec = importlib.util.spec_from_file_location(module_name, path)
        if spec is None or spec.loader is None:
            raise fails(f"{path} is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module  # dataclasses of the file look their module up
        sys.path.insert(0, str(path.parent))  # its own imports lie beside it
        try:
            # compiled here and not by the loader: a cached .pyc of the same second would run old code under the new hash
            exec(compile(code, str(path), "exec"), module.__dict__)
        except (Exception, SystemExit) as problem:
            del sys.modules[module_name]
            raise fails(f"{path} cannot be loaded ({type(problem).__name__}: {problem})") from problem
        finally:
            sys.path.remove(str(path.parent))
    found = getattr(module, function, None)
    if not callable(found):
        raise fails(f"{path} has no function {function}")
    return found
