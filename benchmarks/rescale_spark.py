"""From two replicas to four, with much state: a plan change beside Spark's offline repartition."""

from __future__ import annotations

from functools import partial

from harness import Report, interleave, main
from spark_baselines import spark
from spark_ours import ours_rescale_seconds
from spark_repartition import spark_rescale_seconds

KEYS = {"10k": 10_000, "1m": 1_000_000}
PARTITIONS = (2, 4)


def measure(quick: bool) -> Report:
    report = Report(
        "rescale_spark", "More replicas without a restart: the stream hardly notices a plan change"
    )
    session = spark()
    try:
        for label, keys in KEYS.items():
            cases = {
                "ours": partial(ours_rescale_seconds, session, keys, *PARTITIONS),
                "spark": partial(spark_rescale_seconds, session, keys, *PARTITIONS),
            }
            samples = interleave(cases, 1 if quick else 5)
            for name, sample in samples.items():
                report.add_sample(f"{name}_rescale_s_{label}", sample)
            ratio = samples["spark"].median / samples["ours"].median
            report.add_figure(f"spark_vs_ours_rescale_{label}", ratio)
    finally:
        session.stop()
    return report


if __name__ == "__main__":
    main(measure)
