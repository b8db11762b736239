"""Trainings that are made to be steered: real data, knobs with bounds, three sizes."""
