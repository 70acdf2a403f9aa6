# SPDX-License-Identifier: Apache-2.0
"""What slipring's JSON logs say of gathers (docs/log.md): decisions, and from the trace how shards went."""

import json


class Log:
    """One rank's log while it grows."""

    def __init__(self, path):
        self.path, self.place = path, 0

    def new(self):
        """The events since the last call; none when there is no log."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.place)
                text = file.read()
        except OSError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self.place += len(whole)
        return list(events(whole.decode(errors="replace").splitlines()))


def events(lines):
    """The log's lines may stand among others."""
    for line in lines:
        if line.startswith('{"ts"'):
            try:
                yield json.loads(line)
            except ValueError:  # cut, as the process was killed
                pass


def words(event):
    """One line of a decision, or None."""
    what = event["event"]
    if what == "substitute":
        return "ring"
    if what == "pass":
        return f"left to NCCL: {event['reason']}"
    if what == "fused":
        return f"fused {event['form']} in {event['parts']} parts" + " by event" * (event.get("via") == "event")
    if what == "joined":
        return f"joined: {event['reason']} ({event['by']})"
    if what == "tried":
        times = f"ring {event['ring_ms']:.3g} ms, NCCL {event['nccl_ms']:.3g} ms, parts {event['parts_ms']}"
        stage = "duel" if event.get("stage") == "duel" else "tried"
        return f"{stage}: {times}: {event['by']}, parts {event['parts'] or 'by the pace'}"
    return None


def describe(seen):
    """What was decided, each thing once, as it came."""
    return "; ".join(dict.fromkeys(filter(None, map(words, seen)))) or "nothing logged"
