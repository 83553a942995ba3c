"""Other processes: workers that are sent jobs, and helpers that share the work of this one."""
