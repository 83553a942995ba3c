"""Errors of a cluster, and how long its scheduler may take to answer."""

from pmbnn.spec.errors import UserError

PATIENCE = 10.0
"""Seconds in which a scheduler must answer."""


class ClusterError(UserError):
    """A cluster that cannot be used as it is: the message says what to mend."""


class ClusterLostError(ClusterError):
    """A scheduler that does not answer, from the start or any more."""

    exit_status = 3
