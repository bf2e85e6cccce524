"""I/O of the supervisor: boards, sockets, the keeper, the worker, the grid."""
