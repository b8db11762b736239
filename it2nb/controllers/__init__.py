"""What asks by itself: rules, schedules, agents, searches; with the requests that people have."""
