#!/usr/bin/env python3
"""Count the instructions of draws, and hold them to their bounds.

    cargo build --release -p lockstep-sample --example draws
    python3 scripts/count_instructions.py target/release/examples/draws

Counts, unlike times, are nearly the same in every run and under any load. They are taken by valgrind, which is
installed first if this is Debian's root. Where it cannot be had, nothing is counted, and a line says so.
"""

import os
import re
import shutil
import subprocess
import sys

# What is counted, what it is compared with, and the most that it may take of it.
BOUNDS = [
    ("different", "equal", 1.15),
    ("different", "row-by-row", 1 / 0.97),
    ("masked-particles", "plain-particles", 1.08),
]


def find_valgrind():
    if not shutil.which("valgrind") and shutil.which("apt-get") and os.geteuid() == 0:
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        try:
            for command in (["apt-get", "update"], ["apt-get", "install", "-y", "valgrind"]):
                subprocess.run(command, check=False, timeout=300, **quiet)
        except subprocess.TimeoutExpired:
            pass
    return shutil.which("valgrind")


def count(valgrind, program, way):
    command = [valgrind, "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", program, way]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "RAYON_NUM_THREADS": "1"})
    refs = re.search(r"I\s+refs:\s+([\d,]+)", run.stderr)
    if run.returncode != 0 or not refs:
        sys.exit(f"`{' '.join(command)}` failed:\n{run.stderr}")
    return int(refs[1].replace(",", ""))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    valgrind = find_valgrind()
    if not valgrind:
        print("instructions: not counted, for there is no valgrind: install it and try again")
        return
    ways = {way for bound in BOUNDS for way in bound[:2]}
    nothing = count(valgrind, sys.argv[1], "nothing")
    counts = {way: count(valgrind, sys.argv[1], way) - nothing for way in sorted(ways)}
    for way, instructions in counts.items():
        print(f"instructions: {way} {instructions / 1e6:.1f} million")
    broken = False
    for way, of, most in BOUNDS:
        ratio = counts[way] / counts[of]
        holds = ratio <= most
        broken |= not holds
        print(f"instructions: {way} / {of} {ratio:.3f}, at most {most:.3f}: {'holds' if holds else 'broken'}")
    sys.exit(broken)


if __name__ == "__main__":
    main()
