"""What every section of the configuration is: frozen, closed, documented."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A group of settings. Unknown keys are refused; values never change after loading."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True
    )


Port = Annotated[int, Field(ge=0, le=65535)]
"""A TCP port; 0 takes a free one."""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
