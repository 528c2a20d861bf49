"""GroupConcat: the texts of a group stay joined in their order."""

from __future__ import annotations

from dataflow.ops.played import over_one, plays
from noria.dataflow.ops.stateless.group_concat import GroupConcat
from reference import random_plans


def test_joined_texts_are_those_of_the_reference() -> None:
    plays(over_one(random_plans.group_concat), GroupConcat)
