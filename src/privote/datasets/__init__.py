"""Data to vote on: an embedded set that needs no download."""

from .scene_teachers import scene_teachers
from .scenes import Scenes, load_scenes

__all__ = ["Scenes", "load_scenes", "scene_teachers"]
