from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.db.backends.sqlite3 import base, features

from sessions_app.state_file import state_file


class DatabaseFeatures(features.DatabaseFeatures):
    # known of every SQLite this runs on; Django would open the file to find out, also where there is none yet
    supports_json_field = True


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection that notices when its file was replaced or has vanished.

    An open connection would go on with the old file, which nobody else sees: what it wrote there would be lost. So the
    file is looked at before each use outside of a transaction, and opened anew when it is another one; where there is
    none, that fails.
    """

    features_class = DatabaseFeatures
    _path: Path | None = None
    _opened: tuple[int, int] | None = None

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        connection = super().get_new_connection(conn_params)
        self._path = state_file(self)
        self._opened = self._file()
        return connection

    def ensure_connection(self) -> None:
        self._close_if_replaced()
        super().ensure_connection()

    def close_if_unusable_or_obsolete(self) -> None:
        self._close_if_replaced()  # else Django would use it, and fail, where no view turns that into an answer
        super().close_if_unusable_or_obsolete()

    def _close_if_replaced(self) -> None:
        if self.connection is not None and not self.in_atomic_block and self._file() != self._opened:
            self.close()

    def _file(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_dev, status.st_ino
