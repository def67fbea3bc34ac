"""What turnhold costs, measured beside bare Temporal and beside a peer: `python -m benchmarks`.

Everything runs on this machine against one embedded Temporal server, in one run, in turns: a round
of one contestant, a round of the next. So the noise of the machine falls on all of them, and the
ratios hold where the absolute figures do not.

- `contestants/` can do the same few things each in its own way: **bare**, **turnhold**, **langgraph**;
- `jobs/` are what is measured, `targets.py` what we promise of it;
- `results/` are recorded runs, which `--compare` compares ratios with.
"""
