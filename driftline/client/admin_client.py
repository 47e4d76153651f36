"""What an administrator asks of a service: tokens and quotas."""

from __future__ import annotations

from urllib.parse import quote

import httpx

from driftline.client.connection import Connection, failure
from driftline.wire.access import MadeToken, NewToken, ProjectQuota, Quota, TokenPage, TokenRecord


class AdminClient(Connection):
    """A connection for an administrator; may be used by several threads. Arguments are those of `Connection`."""

    def make_token(self, token: NewToken) -> MadeToken:
        """Makes a token; it is shown this once. Sent once only: a second request would make a second one."""
        content, headers = token.model_dump_json(), {"Content-Type": "application/json"}
        try:
            answer = self._http.post("/v1/tokens", content=content, headers=headers)
        except httpx.TransportError as error:
            raise self._silent(error) from error
        if not answer.is_success:
            raise failure(answer)
        return MadeToken.model_validate_json(answer.content)

    def tokens(self) -> list[TokenRecord]:
        """All tokens, without the tokens themselves, newest first."""
        return [token for page in self._pages("/v1/tokens", {}, TokenPage) for token in page.tokens]

    def revoke_token(self, token_id: str) -> None:
        """Revokes a token; a second time changes nothing.

        Raises:
            NotFound: There is none of this id.
        """
        self._request("DELETE", f"/v1/tokens/{quote(token_id, safe='')}")

    def quota(self, project: str | None = None) -> ProjectQuota:
        """What a project may have, and what it has.

        Args:
            project: Its name; the token's own by default, for which no administrator is needed.
        """
        return self._get("/v1/quota" if project is None else _quota(project), ProjectQuota)

    def set_quota(self, project: str, quota: Quota) -> ProjectQuota:
        """Sets what a project may have, in place of the service's defaults."""
        content = quota.model_dump_json()
        return ProjectQuota.model_validate_json(self._request("PUT", _quota(project), content=content).content)


def _quota(project: str) -> str:
    return f"/v1/projects/{quote(project, safe='')}/quota"
