"""Programs around a channel: what the commands of the command line run."""
