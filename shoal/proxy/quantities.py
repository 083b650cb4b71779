"""Numbers as people read them. MB = 1,000,000 bytes, as disks and networks are told."""

__all__ = ["counted", "megabytes"]


def counted(count: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def megabytes(size: int) -> str:
    return (
        f"{size / 1e6:,.0f} MB"
        if size >= 100_000_000
        else f"{size / 1e6:,.1f} MB"
        if size >= 100_000
        else f"{size / 1e3:,.1f} kB"
    )
