"""What every package above uses: specifications, errors, stages of work, the machine."""
