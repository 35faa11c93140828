"""Asks a security token service for the keys of a role: AWS STS, or what speaks it, as MinIO does."""

from __future__ import annotations

from typing import Any

import boto3
import botocore.exceptions
from botocore.config import Config as BotoConfig

from objectstore.credentials import Keys, Lent, Role
from objectstore.store import StoreError


class Sts:
    """Of one role. Each call blocks: call it in a thread."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._known: tuple[Keys | None, Any] | None = None

    def assume(self, name: str, policy: str = "") -> Lent:
        """Keys of a session of that name; `policy` takes away from what the role may, empty: nothing.

        Raises StoreError, which has nothing secret in it.
        """
        role = self._role
        less = {"Policy": policy} if policy else {}
        try:
            answer = self._client().assume_role(
                RoleArn=role.arn, RoleSessionName=name, DurationSeconds=role.duration_s, **less
            )
            found = answer["Credentials"]
            expires_ms = int(found["Expiration"].timestamp() * 1000)
            return Lent(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"], expires_ms)
        except botocore.exceptions.ClientError as error:
            told = error.response.get("Error", {})
            reason = f"{told.get('Code', '')}: {told.get('Message', '')}"
        except (botocore.exceptions.BotoCoreError, OSError, ValueError, KeyError) as error:
            reason = f"{type(error).__name__}: {error}"
        raise StoreError(f"the role {role.arn} was not assumed at {role.url or 'AWS STS'}: {reason}")

    def _client(self) -> Any:
        """With the agent's keys as they are now."""
        role, keys = self._role, self._role.keys()
        if self._known is None or self._known[0] != keys:
            given = keys or Keys("", "")
            session = boto3.session.Session()  # the default one is not for several threads
            client = session.client(
                "sts",
                region_name=role.region,
                endpoint_url=role.url or None,
                aws_access_key_id=given.access or None,
                aws_secret_access_key=given.secret or None,
                aws_session_token=given.token or None,
                verify=role.ca_file or None,
                config=BotoConfig(
                    connect_timeout=role.timeout_s,
                    read_timeout=role.timeout_s,
                    retries={"total_max_attempts": 2, "mode": "standard"},
                ),
            )
            self._known = (keys, client)
        return self._known[1]
