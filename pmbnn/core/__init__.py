"""What every room above uses: stages of work and their times, compute devices."""
