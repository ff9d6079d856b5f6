"""A word count that tunes itself: what `make run` shows.

Endless generated text is counted on embedded Spark, at first with one copy of everything. Nothing
here says how many readers, replicas or rows a batch there shall be: the policy measures, finds a
better plan, tries it, and keeps it if it helped. The counts are what one thread would have counted.
"""

import argparse

PARSER = argparse.ArgumentParser(description="Word count on embedded Spark that tunes itself.")
PARSER.add_argument("--seconds", type=float, default=30, help="how long to count")
PARSER.add_argument("--policy", default="auto", help="who tunes it; none for nobody")


def main(seconds: float, policy: str) -> None:
    """Start with the narrowest plan, let it be tuned, stop, and say what came of it."""
    # Said before the imports: those and the start of Spark take some seconds.
    print(f"Counting words of generated text on embedded Spark for {seconds:.0f} s …", flush=True)

    import pyarrow as pa
    from rich.console import Console

    import anabranch as ab
    from anabranch.apps import word_count
    from anabranch.view.outcome import in_words
    from anabranch.view.progress import Progress

    # The text is endless, so the counts are not collected: the summary keeps one of each word.
    summary = word_count.Summary()
    out = ab.call(lambda rows, version: summary.add("out", pa.Table.from_batches([rows])))
    flow = word_count.build(rows=None).writing({"out": out})

    progress = Progress("word-count")
    with progress.live(Console(stderr=True)):
        handle = ab.start(flow, plan=ab.plan(flow), policy=policy, listener=progress.hear)
        try:
            handle.await_termination(seconds)
        except KeyboardInterrupt:
            print("stopping after the batch that is under way", flush=True)
        handle.stop()

    print(summary, in_words(handle.result(), flow), sep="\n\n")


if __name__ == "__main__":
    given = PARSER.parse_args()
    main(given.seconds, given.policy)
