"""The page for people: the inbox, one task, the list of tasks, the incidents. Plain forms, which need no script."""
