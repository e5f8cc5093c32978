"""Helpers for the tests of programs and providers that build on this package.

- `adapter_suite`  the conformance kit: what any provider's author runs over his adapter
- `pytest_plugin`  what a run of it says at its end
- `cuts`           cancels a call, or strikes, after the k-th step of any task, for every k
- `demo_plan`      what ``tutti-side demo`` asks of a provider's test bed, and must then see
- `processes`      which processes of a child, or of a whole test, are still alive
- `simulation`     one simulated run: users and faults from a seed, then convergence, and the judges of both
- `simulate`       its command: `python -m tutti_side.testing.simulate`
- `_schedule`      Trio's schedule from a seed: the one place that touches private names of Trio's
"""
