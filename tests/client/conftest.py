from client_fixtures import finish, hook, launch, supervisor

__all__ = ["finish", "hook", "launch", "supervisor"]
