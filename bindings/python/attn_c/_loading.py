"""Which plugin library the extension module uses.

The library lies beside the module and is found there by its run path. ATTN_C_LIBRARY names another
file instead: once a library of that name is in the process, the loader looks no further.
"""

import ctypes
import os

_path = os.environ.get("ATTN_C_LIBRARY")
if _path:
    ctypes.CDLL(_path)
