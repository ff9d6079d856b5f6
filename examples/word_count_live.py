"""Change the plan of a running word count: what `make run` shows.

Endless generated text is counted on embedded Spark, first under the plan with one copy of
everything. After a while a wider plan is applied: the next batch runs under it, without a restart,
and the counts are what one thread would have counted.
"""

import argparse

PARSER = argparse.ArgumentParser(description="Word count on embedded Spark with a plan change.")
PARSER.add_argument("--seconds", type=float, default=30, help="how long to count")
PARSER.add_argument("--change-after", type=float, default=10, help="seconds under the first plan")


def main(seconds: float, change_after: float) -> None:
    """Start, change the plan under way, stop, and say what came of it."""
    # Said before the imports: those and the start of Spark take some seconds.
    print(f"Counting words of generated text on embedded Spark for {seconds:.0f} s …", flush=True)

    from rich.console import Console

    import anabranch as ab
    from anabranch.apps import word_count
    from anabranch.view.outcome import in_words
    from anabranch.view.progress import Progress

    counts = ab.collect()
    flow = word_count.build(rows=None, sink=counts)

    narrow = ab.plan(flow).with_source("lines", batch_rows=100_000)
    wide = narrow.with_source("lines", replicas=2)
    wide = wide.with_replicas("split", 2).with_replicas("count", 2)

    progress = Progress("word-count")
    with progress.live(Console(stderr=True)):
        handle = ab.start(flow, plan=narrow, listener=progress.hear)
        try:
            handle.await_termination(change_after)
            handle.apply(wide)
            handle.await_termination(seconds - change_after)
        except KeyboardInterrupt:
            print("stopping after the batch that is under way", flush=True)
        handle.stop()

    print(word_count.summary(counts.table()), in_words(handle.result()), sep="\n\n")


if __name__ == "__main__":
    given = PARSER.parse_args()
    main(given.seconds, min(given.change_after, given.seconds))
