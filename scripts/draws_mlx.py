#!/usr/bin/env python3
"""Draw tokens with mlx-lm's samplers, row by row, as its batched generation does; for `lockstep bench draw --mlx`.

Needs mlx-lm, which Lockstep itself never does; put it into an environment of its own, and name its interpreter:

    python3 -m venv mlx-env && mlx-env/bin/pip install 'mlx[cpu]' mlx-lm
    lockstep bench draw --only mixes --mlx mlx-env/bin/python

Reads one JSON object a line and answers each with a line of JSON. `{"ids": N, "rows": [{...}, ...]}` makes a batch,
rows of random logits with the keyword arguments of `make_sampler` each, and gets its number; `{"batch": NUMBER}`
draws a token for every row of that batch, and gets the tokens.
"""

import json
import sys

import mlx.core as mx
from mlx_lm.sample_utils import make_sampler


def make(ids, rows):
    logits = mx.random.normal((len(rows), ids)) * 3
    mx.eval(logits)
    return logits, [make_sampler(**settings) for settings in rows]


def draw(logits, samplers):
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    tokens = [sampler(logprobs[row : row + 1]) for row, sampler in enumerate(samplers)]
    return mx.concatenate(tokens).tolist()


def main():
    mx.set_default_device(mx.cpu)
    batches = []
    for line in sys.stdin:
        request = json.loads(line)
        if "rows" in request:
            answer = len(batches)
            batches.append(make(**request))
        else:
            answer = draw(*batches[request["batch"]])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
