"""Where the rules meet the world: boards, sockets, the keeper, the worker, the grid."""
