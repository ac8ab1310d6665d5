"""Cache folders in the layout of Weft and huggingface_hub, for the tests of this folder."""
import hashlib
import os
import pathlib

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Cache:
    def __init__(self, path):
        self.path = pathlib.Path(path)

    def repo(self, owner, name):
        return self.path / f"models--{owner}--{name}"

    def blobs(self, owner, name):
        folder = self.repo(owner, name) / "blobs"
        return {path.name: path.stat().st_size for path in folder.iterdir()} if folder.exists() \
            else {}

    def add(self, owner, name, files, commit=COMMIT, ref="main"):
        """files: {path in the repository: a file to copy the content from, or bytes}."""
        repo = self.repo(owner, name)
        (repo / "blobs").mkdir(parents=True, exist_ok=True)
        if ref:
            (repo / "refs").mkdir(exist_ok=True)
            (repo / "refs" / ref).write_text(commit)
        snapshot = repo / "snapshots" / commit
        for path, source in files.items():
            content = source if isinstance(source, bytes) else pathlib.Path(source).read_bytes()
            # (Two files with equal content share a blob.)
            digest = hashlib.sha256(content).hexdigest()
            (repo / "blobs" / digest).write_bytes(content)
            link = snapshot / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(repo / "blobs" / digest, link.parent))
        return snapshot
