"""Client for administrators: tokens and quotas."""

from __future__ import annotations

from urllib.parse import quote

import httpx

from driftline.client.connection import Connection, failure
from driftline.wire.access import MadeToken, NewToken, ProjectQuota, Quota, TokenPage, TokenRecord


class AdminClient(Connection):
    """Tokens and quotas of a service; most need a token with the scope admin. Thread-safe.

    Args:
        url: Address of the service.
        token: Bearer token.
        socket, transport, timeout_s, patience_s, on_wait, sleep: As in `Connection`.

    Examples:
        >>> from driftline import AdminClient
        >>> with AdminClient("http://127.0.0.1:8080", "...") as admin:  # doctest: +SKIP
        ...     print(admin.whoami().scopes, admin.quota("vision").limits)
    """

    def make_token(self, token: NewToken) -> MadeToken:
        """Creates a token, which is shown only once. The request is not repeated: it would create a second token.

        Raises:
            Unavailable: No answer came; the token may have been created.
        """
        content, headers = token.model_dump_json(), {"Content-Type": "application/json"}
        try:
            with self._announced():
                answer = self._http.post("/v1/tokens", content=content, headers=headers)
        except httpx.TransportError as error:
            raise self._silent(error) from error
        if not answer.is_success:
            raise failure(answer)
        return MadeToken.model_validate_json(answer.content)

    def tokens(self) -> list[TokenRecord]:
        """All tokens, without the tokens themselves, newest first."""
        return [token for page in self._pages("/v1/tokens", {}, TokenPage) for token in page.tokens]

    def revoke_token(self, token_id: str) -> TokenRecord:
        """Revokes a token, and returns its record; doing so again changes nothing.

        Raises:
            NotFound: No token has this id.
        """
        answer = self._request("DELETE", f"/v1/tokens/{quote(token_id, safe='')}")
        return TokenRecord.model_validate_json(answer.content)

    def quota(self, project: str | None = None) -> ProjectQuota:
        """A project's limits and its current use.

        Args:
            project: Its name; by default the token's own project, which does not require an administrator.
        """
        return self._get("/v1/quota" if project is None else _quota(project), ProjectQuota)

    def set_quota(self, project: str, quota: Quota) -> ProjectQuota:
        """Sets a project's limits, in place of the service's defaults."""
        content = quota.model_dump_json()
        return ProjectQuota.model_validate_json(self._request("PUT", _quota(project), content=content).content)


def _quota(project: str) -> str:
    return f"/v1/projects/{quote(project, safe='')}/quota"
