"""One job in one process: what is asked, the supervisor, the guard, the environment."""
