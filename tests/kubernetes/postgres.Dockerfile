# PostgreSQL for the tests, with what the chart uses of the official image: POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB, PGDATA, uid 999.
ARG BASE
FROM ${BASE}
COPY postgres-entrypoint.sh /usr/local/bin/docker-entrypoint.sh
RUN set -eu; \
    groupadd -r -g 999 postgres; \
    useradd -r -u 999 -g postgres -d /var/lib/postgresql -s /bin/bash postgres; \
    mkdir -p /etc/postgresql-common; \
    echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf; \
    apt-get update -q; \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends postgresql-15 >/dev/null; \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /usr/share/doc /usr/share/man; \
    mkdir -p /var/lib/postgresql/data /var/run/postgresql; \
    chown -R 999:999 /var/lib/postgresql /var/run/postgresql; \
    chmod 755 /usr/local/bin/docker-entrypoint.sh
ENV PATH=/usr/lib/postgresql/15/bin:/usr/local/bin:/usr/bin:/bin PGDATA=/var/lib/postgresql/data LANG=C.UTF-8
USER 999:999
# As in the official image: SIGTERM would wait until every client has left.
STOPSIGNAL SIGINT
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["postgres"]
