"""How property tests draw their examples.

`default` draws the same examples in every run, so a failure is always the change's own doing.
`soak` (`make soak`) draws fresh ones, as many as ANABRANCH_SOAK says. A law that sets
`max_examples` itself keeps its own number in both, so laws leave it to the profile.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("default", derandomize=True, deadline=None, print_blob=True)

soak_examples = os.environ.get("ANABRANCH_SOAK")
if soak_examples:
    settings.register_profile(
        "soak",
        derandomize=False,
        deadline=None,
        print_blob=True,
        max_examples=int(soak_examples),
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("soak" if soak_examples else "default")
