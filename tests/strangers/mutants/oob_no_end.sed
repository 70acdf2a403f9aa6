# What has come is looked at until nothing more comes.
s/i < TURN && queued/queued/
