"""Files of a checkpoint, a sink or a spool, on any store whose abilities are known.

``Storage`` is one folder and everything below it. The ``Store`` behind it states what it can do (``Abilities``), and
the protocols of ``equipoise.state`` rely on that statement, never on the type of the store.
"""

from equipoise.storage.folder import Storage, StoredFile, Written, canonical
from equipoise.storage.local_disk import sync_folder
from equipoise.storage.store import Abilities, FolderEntry, Store, Upload

__all__ = [
    "Abilities",
    "FolderEntry",
    "Storage",
    "Store",
    "StoredFile",
    "Upload",
    "Written",
    "canonical",
    "sync_folder",
]
