"""The users of PLAIN: a file of salted hashes, one user a line, as `floe user hash` writes it."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from agent.config.errors import ConfigError
from agent.config.renewed import Renewed

FORMAT: Final = "pbkdf2-sha256"
ITERATIONS: Final = 20_000
"""Of new hashes. About 8 ms for each login: clients of Kafka reconnect often, and all at once."""
ITERATIONS_MIN, ITERATIONS_MAX = 1_000, 1_000_000
SALT_BYTES: Final = 16
FILE_BYTES_MAX: Final = 16 * 1024 * 1024
USERS_MAX: Final = 100_000
NAME_LENGTH_MAX: Final = 255


class Hashed(NamedTuple):
    """A password that cannot be read back."""

    iterations: int
    salt: bytes
    hash: bytes

    def fits(self, password: str) -> bool:
        """Takes milliseconds: call it in a thread."""
        return hmac.compare_digest(_hash(password, self.salt, self.iterations), self.hash)


def _hash(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)


def line_of(user: str, password: str, salt: bytes) -> str:
    """A line of the file. ValueError for a name that cannot be one."""
    fits = 0 < len(user) <= NAME_LENGTH_MAX and user.isprintable()
    if not fits or user != user.strip() or user.startswith("#"):
        raise ValueError(
            f"a name has 1 to {NAME_LENGTH_MAX} printable characters, and begins with neither space nor #"
        )
    hashed = _hash(password, salt, ITERATIONS)
    return f"{user}:{FORMAT}:{ITERATIONS}:{b64encode(salt).decode()}:{b64encode(hashed).decode()}"


class UsersFile(Renewed):
    """The file as it was read last in full; what is wrong with a newer one is in `problem`."""

    name = "users of PLAIN"

    def __init__(self, path: str) -> None:
        """An empty path: there is none. Raises ConfigError for a file that is none."""
        super().__init__(path)
        self._path = path
        self._iterations = ITERATIONS
        self.users: Mapping[str, Hashed] = {}
        if path:
            self.make()

    @property
    def nobody(self) -> Hashed:
        """What the password of an unknown user is compared with: it takes as long as most users' do."""
        return Hashed(self._iterations, bytes(SALT_BYTES), bytes(32))

    def make(self) -> None:
        """See Renewed."""
        self.users = self._read()

    def _read(self) -> dict[str, Hashed]:
        try:
            with open(self._path, "rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(f"sasl.users_file ({self._path}): {error.strerror or error}") from None
        if len(content) > FILE_BYTES_MAX:
            raise ConfigError(f"sasl.users_file ({self._path}): larger than {FILE_BYTES_MAX} bytes")
        users: dict[str, Hashed] = {}
        for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                user, hashed = self._line(number, line.rstrip())
                if user in users or len(users) >= USERS_MAX:
                    raise self._wrong(number, f"user {user!r} is given twice, or one of over {USERS_MAX}")
                users[user] = hashed
        rounds = Counter(each.iterations for each in users.values())
        self._iterations = rounds.most_common(1)[0][0] if rounds else ITERATIONS
        return users

    def _line(self, number: int, line: str) -> tuple[str, Hashed]:
        """Never shows the line: somebody may have written a password there."""
        user, *rest = line.rsplit(":", 4)
        try:
            form, iterations, salt, hashed = rest
            found = Hashed(int(iterations), b64decode(salt, validate=True), b64decode(hashed, validate=True))
        except ValueError:
            raise self._wrong(number, "not as `floe user hash` writes it") from None
        rounds_fit = ITERATIONS_MIN <= found.iterations <= ITERATIONS_MAX
        if form != FORMAT or not user or not rounds_fit or len(found.hash) != 32:
            raise self._wrong(number, f"not {FORMAT} of {ITERATIONS_MIN} to {ITERATIONS_MAX} iterations")
        return user, found

    def _wrong(self, number: int, what: str) -> ConfigError:
        return ConfigError(f"sasl.users_file ({self._path}:{number}): {what}")
