# MLflow with passwords: nobody sees an experiment without an account and a grant, and only administrators change
# something. Its accounts lie in its database.
set -eu
umask 077
# The image has psycopg 3; MLflow's own documentation writes addresses for psycopg2.
MLFLOW_DATABASE="$(printf %s "$MLFLOW_DATABASE" | sed -E 's#^postgresql(\+psycopg2)?://#postgresql+psycopg://#')"
{
  printf '[mlflow]\n'
  printf 'default_permission = %s\n' "$DEFAULT_PERMISSION"
  printf 'database_uri = %s\n' "$(printf %s "$MLFLOW_DATABASE" | sed 's/%/%%/g')"
} > "$MLFLOW_AUTH_CONFIG_PATH"
export MLFLOW_BACKEND_STORE_URI="$MLFLOW_DATABASE"
exec python /etc/mlflow/server.py --app-name basic-auth --host "$LISTEN" --port 5000 --workers 1 \
  --serve-artifacts --artifacts-destination "$ARTIFACTS" \
  --allowed-hosts "$ALLOWED_HOSTS" --cors-allowed-origins "$ALLOWED_ORIGINS"
