"""The answer of a reassembler as a word."""

from fairway.protocol.segmentation.outcomes import MessageComplete, Outcome, SegmentKept


def answered(outcome: Outcome | None) -> str:
    """Return "whole", "complete", "kept", "late", "duplicate", or the reason of a refusal."""
    match outcome:
        case None:
            return "nothing"
        case MessageComplete(segments=None):
            return "whole"
        case MessageComplete():
            return "complete"
        case SegmentKept(is_late=True):
            return "late"
        case SegmentKept(is_duplicate=True):
            return "duplicate"
        case SegmentKept():
            return "kept"
        case _:
            return outcome.reason
