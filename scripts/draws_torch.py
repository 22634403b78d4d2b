#!/usr/bin/env python3
"""Time PyTorch's ways to draw a token a row, on a block of logits like those of `lockstep bench draw`.

Needs PyTorch for the CPU, which Lockstep itself never does; put it into an environment of its own:

    python3 -m venv torch-env && torch-env/bin/pip install torch numpy
    torch-env/bin/python scripts/draws_torch.py --rows 32 --ids 49152 --threads 2

Prints one JSON object: for each way wall-clock milliseconds, and those of processor time of all threads
(steadier on a busy machine, but with the time that waiting threads spin), least and median of rounds. A round
counts the best of three turns, as theirs do. Compare with
`lockstep bench draw --only blocks --blocks 32x49152`, run in turn with this on an otherwise idle machine.
"""

import argparse
import json
import statistics
import time

import torch

# Turns of a round.
TURNS = 3


def ways(logits):
    def gumbel_max(logp):
        noise = torch.rand_like(logp).clamp_min(torch.finfo(logp.dtype).tiny)
        return (logp - torch.log(-torch.log(noise))).argmax(-1)

    def top_p(p):
        logp, ids = torch.log_softmax(logits, -1).sort(-1, descending=True)
        mass = logp.exp()
        logp = logp.masked_fill(mass.cumsum(-1) - mass >= p, float("-inf"))
        return ids.gather(-1, gumbel_max(logp)[:, None])

    def inverse_cdf():
        running = torch.softmax(logits, -1).cumsum(-1)
        return torch.searchsorted(running, torch.rand(len(logits), 1) * running[:, -1:])

    def top_k(k):
        logp, ids = logits.topk(k, -1)
        return ids.gather(-1, gumbel_max(logp)[:, None])

    return {
        "read": lambda: logits.sum(),
        "greedy": lambda: logits.argmax(-1),
        "gumbel_max": lambda: gumbel_max(torch.log_softmax(logits, -1)),
        "inverse_cdf": inverse_cdf,
        "multinomial": lambda: torch.multinomial(torch.softmax(logits, -1), 1),
        "top_p": lambda: top_p(0.95),
        "top_k": lambda: top_k(50),
    }


def turn(work):
    start = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - start[0]) * 1e3, (time.process_time() - start[1]) * 1e3


def measure(work, rounds):
    work()
    wall, processor = [], []
    for _ in range(rounds):
        turns = [turn(work) for _ in range(TURNS)]
        wall.append(min(turn[0] for turn in turns))
        processor.append(min(turn[1] for turn in turns))
    return {
        "ms": statistics.median(wall),
        "least_ms": min(wall),
        "processor_ms": statistics.median(processor),
        "least_processor_ms": min(processor),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--ids", type=int, default=49152)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", help="only the ways whose name contains this")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    logits = torch.randn(args.rows, args.ids, generator=torch.Generator().manual_seed(0)) * 3
    chosen = {name: work for name, work in ways(logits).items() if not args.only or args.only in name}
    print(
        json.dumps(
            {
                "torch": torch.__version__,
                "rows": args.rows,
                "ids": args.ids,
                "threads": args.threads,
                "rounds": args.rounds,
                "ways": {name: measure(work, args.rounds) for name, work in chosen.items()},
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
