"""All entries of a key group: its last snapshot with the changes since folded in."""

from equipoise.state.catch_up import SectionReader
from equipoise.state.log import Chain


def group_entries(chain: Chain, sections: SectionReader) -> dict[bytes, bytes]:
    """All entries of a group.

    Parameters
    ----------
    chain
        Where the state of the group is.
    sections
        Fetches it.
    """
    entries: dict[bytes, bytes] = {}
    parts = [chain.snapshot.section] if chain.snapshot else []
    for section in parts + [change.section for change in chain.changes]:
        if section.reset:
            entries.clear()
        for key, value in sections.entries(section):
            if value is None:
                entries.pop(key, None)
            else:
                entries[key] = value
    return entries
