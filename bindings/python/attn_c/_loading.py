"""Which plugin library the extension module uses.

The library lies beside the module and is found there by its run path. ATTN_C_LIBRARY names another
file instead: once a library of that name is in the process, the loader looks no further.
"""

import ctypes
import os
import sys

PROBLEM = ""  # of ATTN_C_LIBRARY, for the doctor, who goes on without it


def _is_doctor() -> bool:
    """Whether this process is `python -m attn_c doctor`."""
    words = sys.orig_argv
    return any(words[at:at + 3] == ["-m", "attn_c", "doctor"] for at in range(len(words)))


def _load(path: str) -> str:
    """Brings a library into the process; why it is not the one to use, empty where it is."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        return f"ATTN_C_LIBRARY is {path}, which cannot be loaded: {error}"
    if not hasattr(library, "attn_get_api"):
        return f"ATTN_C_LIBRARY is {path}, which is no library of attn_c: it has no attn_get_api"
    return ""


_path = os.environ.get("ATTN_C_LIBRARY")
if _path:
    PROBLEM = _load(_path)
    if PROBLEM and not _is_doctor():
        raise ImportError(PROBLEM)
