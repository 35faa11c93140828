"""Super users are principals; nobody is asked unless somebody says so."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from agent.config import Config
from agent.config.authorizer import principals

BASE = {"log": {"url": "memory:"}, "store": {"url": "memory:"}, "tables": {"enabled": False}}


def test_nobody_is_asked_by_default() -> None:
    assert Config.model_validate(BASE).authorizer.mode == "off"


def test_super_users_are_parted_by_semicolons() -> None:
    given = {"super_users": "User:root; User:CN=a,O=b ;"}
    config = Config.model_validate({**BASE, "authorizer": given})
    assert principals(config.authorizer.super_users) == [
        "User:root",
        "User:CN=a,O=b",
    ]


@pytest.mark.parametrize("names", ["root", "User:", "Group:root", "User:root,x;root"])
def test_a_super_user_without_a_type_is_refused(names: str) -> None:
    with pytest.raises(ValidationError, match=r"authorizer.super_users has .* write User:name"):
        Config.model_validate({**BASE, "authorizer": {"super_users": names}})
