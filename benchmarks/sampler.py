"""Time the Givens sampler: python benchmarks/sampler.py [--quick] [--json rows.json] [exactness speed calls ...]"""

from orthosparse.lab.bench.sampler import main

if __name__ == "__main__":
    raise SystemExit(bool(main()))
