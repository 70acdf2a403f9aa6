# A reader that does not know its peer's place takes the shard from a slot, whatever the peer does.
s/how == EXPECTS && !slr_for_replays_due\(c\)/how == EXPECTS/
