_current_level: int
