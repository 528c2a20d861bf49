"""The tables of a blog.  Foreign keys are relations of the models, not of the tables (`db_constraint=False`)."""

from __future__ import annotations

from typing import Any

from django.db import models


def _to(model: type[Any], name: str) -> Any:
    return models.ForeignKey(model, models.CASCADE, related_name=name, db_constraint=False)


class User(models.Model):
    name = models.CharField(max_length=60)


class Post(models.Model):
    author = _to(User, "posts")
    title = models.CharField(max_length=120)
    body = models.TextField()
    created_at = models.DateTimeField(db_index=True)


class Comment(models.Model):
    post = _to(Post, "comments")
    author = _to(User, "comments")
    text = models.CharField(max_length=200)


class Like(models.Model):
    post = _to(Post, "likes")
    user = _to(User, "likes")


ALL = (User, Post, Comment, Like)
