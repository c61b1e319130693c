"""What each command takes; what it does is in the modules beside, imported when it runs so that `--help` is quick."""
