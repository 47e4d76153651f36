"""The tables of the store, the single source of truth about studies, trials and curves.

Times are Unix times in seconds, as floats, so that SQLite and PostgreSQL hold the same numbers.
A change here needs a migration in ``migrations/versions``; a test compares the two.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_Json = JSON(none_as_null=True)
_Name = String(255).with_variant(String(255, collation="C"), "postgresql")  # sorts by bytes, as SQLite does
_Counter = BigInteger().with_variant(Integer, "sqlite")  # SQLite autoincrements only INTEGER PRIMARY KEY

STUDIES = Table(
    "studies",
    METADATA,
    Column("id", String(64).with_variant(String(64, collation="C"), "postgresql"), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("name", String(255), nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("spec", _Json, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("version", Integer, nullable=False),  # increases with every stored result
    Column("planned", BigInteger, nullable=False, server_default="0"),  # trials that the budget asks for
    Column("plan", _Json),  # how trials are asked for and packed, see `plans`
    Column("mlflow_url", Text),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("started_at", Double),  # when the first driver acquired it
    Column("finished_at", Double),
    Column("curve_rows", BigInteger, nullable=False, server_default="0"),  # as last measured, see `sizes`
    Column("curve_bytes", BigInteger, nullable=False, server_default="0"),
    Column("measured_version", Integer, nullable=False, server_default="0"),
    Column("measured_at", Double, nullable=False, server_default="0"),
    Column("deleted_at", Double),  # hidden since then, see `deletions`
    Index("ix_studies_project_id", "project", "id"),
    Index("ix_studies_project_state", "project", "state"),
    Index("ix_studies_state", "state"),
    Index("ix_studies_finished_at", "finished_at"),
    Index("ix_studies_deleted_at", "deleted_at"),
)

DELETIONS = Table(  # deleted studies of which something outside the database remains
    "deletions",
    METADATA,
    Column("study_id", String(64), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("name", String(255), nullable=False),
    Column("deleted_at", Double, nullable=False),
    Column("files", Boolean, nullable=False),  # whether checkpoints and logs remain
    Column("mlflow", Boolean, nullable=False),  # whether runs in MLflow remain
)

ARCHIVES = Table(  # the files of programs
    "archives",
    METADATA,
    Column("project", String(64), primary_key=True),
    Column("digest", String(64), primary_key=True),  # SHA-256 of the tar in `content`
    Column("size", BigInteger, nullable=False),
    Column("used_at", Double, nullable=False),  # when it was last sent, or last used by a new study
    Column("content", LargeBinary, nullable=False),
)

STUDY_ARCHIVES = Table(  # the archive that a study needs
    "study_archives",
    METADATA,
    Column("study_id", String(64), ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
    Index("ix_study_archives_project_digest", "project", "digest"),
)

PAST_USE = Table(  # GPU-time of deleted studies: deleting gives none back
    "past_use",
    METADATA,
    Column("project", String(64), primary_key=True),
    Column("gpu_seconds", Double, nullable=False),
)

TRIALS = Table(
    "trials",
    METADATA,
    Column("id", String(255), primary_key=True),
    Column("study_id", String(64), ForeignKey("studies.id", ondelete="CASCADE"), nullable=False),
    Column("label", _Name, nullable=False),
    Column("phase", String(16).with_variant(String(16, collation="C"), "postgresql"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("configuration", Integer),
    Column("hyperparameters", _Json, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("rounds_done", Integer, nullable=False),
    Column("pack", String(255)),
    Column("plan", _Json),
    Column("checkpoint", Text),
    Column("values", _Json),
    Column("error", Text),
    Column("deaths", Integer, nullable=False, server_default="0"),  # of workers, in a row without a new checkpoint
    Column("death_round", Integer),  # round of the newest checkpoint at the last death
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    UniqueConstraint("study_id", "label", "phase", "number"),
    Index("ix_trials_study_id_state", "study_id", "state"),
)

CURVE_SEGMENTS = Table(
    "curve_segments",
    METADATA,
    Column("trial_id", String(255), ForeignKey("trials.id", ondelete="CASCADE"), primary_key=True),
    Column("segment", Integer, primary_key=True, autoincrement=False),  # round // 256
    Column("rounds", Integer, nullable=False),  # number of rounds in the payload
    Column("payload", LargeBinary, nullable=False),
)

EVENTS = Table(
    "events",
    METADATA,
    Column("id", _Counter, primary_key=True, autoincrement=True),
    Column("study_id", String(64), ForeignKey("studies.id", ondelete="CASCADE"), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("data", _Json, nullable=False),
    Column("created_at", Double, nullable=False),
    Index("ix_events_study_id_id", "study_id", "id"),
    sqlite_autoincrement=True,  # never reuses an id, even after the newest row was deleted
)

DRIVERS = Table(
    "drivers",
    METADATA,
    Column("study_id", String(64), ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, nullable=False),  # the fencing token
    Column("holder", String(255), nullable=False),
    Column("nonce", String(64), nullable=False, server_default=""),  # sent with its requests; "" if it sends none
    Column("acquired_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("released", Boolean, nullable=False),
    Column("deaths", Integer, nullable=False),  # drivers lost in a row without progress
    Column(
        "fingerprint", String(64), nullable=False, server_default=""
    ),  # of the study at acquire, or `leases.RETRIED`
)

PACKS = Table(  # resources used, and for how long
    "packs",
    METADATA,
    Column("study_id", String(64), ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True),
    Column("pack", String(255), primary_key=True),
    Column("label", _Name, nullable=False),
    Column("trials", Integer, nullable=False),
    Column("cpus", Double, nullable=False),
    Column("gpus", Double, nullable=False),
    Column("rounds_before", BigInteger, nullable=False),  # rounds of its trials before, summed
    Column("rounds", BigInteger),  # rounds done in the pack, summed; set at its end
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    Index("ix_packs_study_id_ended_at", "study_id", "ended_at"),
)

LOCKS = Table(
    "locks",
    METADATA,
    Column("name", String(255), primary_key=True),
    Column("holder", String(255), nullable=False),
    Column("expires_at", Double, nullable=False),
)

RECORDER_STATE = Table(
    "recorder_state",
    METADATA,
    Column("study_id", String(64), ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True),
    Column("kind", String(32), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("run_id", String(255), nullable=False),
    Column("version", Integer, nullable=False),
    Column("rounds", Integer, nullable=False),
    Column("updated_at", Double, nullable=False),
)

IDEMPOTENCY_KEYS = Table(
    "idempotency_keys",
    METADATA,
    Column("project", String(64), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("request_hash", String(64), nullable=False),
    Column("study_id", String(64), ForeignKey("studies.id", ondelete="CASCADE"), nullable=False),
    Column("created_at", Double, nullable=False),
)

META = Table(
    "meta",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

TOKENS = Table(
    "tokens",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("digest", String(64), nullable=False),  # SHA-256 of the token; the token itself is not stored
    Column("name", String(255), nullable=False),
    Column("project", String(64), nullable=False),
    Column("scopes", _Json, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("created_by", String(255), nullable=False),
    Column("expires_at", Double),
    Column("last_used_at", Double),
    Column("revoked_at", Double),
    UniqueConstraint("digest"),
)

QUOTAS = Table(
    "quotas",
    METADATA,
    Column("project", String(64), primary_key=True),
    Column("studies", Integer),
    Column("trials", BigInteger),
    Column("gpu_hours", Double),
    Column("retention_days", Double),
    Column("gpu_hours_pause", Boolean, nullable=False, server_default=false()),
    Column("updated_at", Double, nullable=False),
)

AUDIT = Table(
    "audit",
    METADATA,
    Column("id", _Counter, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    Column("project", String(64), nullable=False),
    Column("actor", String(255), nullable=False),
    Column("actor_name", String(255), nullable=False),
    Column("action", String(32), nullable=False),
    Column("target", String(255), nullable=False),
    Column("details", _Json, nullable=False),
    Index("ix_audit_project_id", "project", "id"),
    Index("ix_audit_action_at", "action", "at"),
    sqlite_autoincrement=True,
)

LOG_LINES = Table(
    "log_lines",
    METADATA,
    Column("id", _Counter, primary_key=True, autoincrement=True),
    Column("study_id", String(64), ForeignKey("studies.id", ondelete="CASCADE"), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("at", Double, nullable=False),
    Column("level", String(16), nullable=False),
    Column("text", Text, nullable=False),
    Index("ix_log_lines_study_id_id", "study_id", "id"),
    sqlite_autoincrement=True,
)

LOG_TOTALS = Table(
    "log_totals",
    METADATA,
    Column("study_id", String(64), ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True),
    Column("lines", Integer, nullable=False),  # lines kept
    Column("dropped", BigInteger, nullable=False),  # older lines dropped
    Column("newest", String(64), nullable=False),  # SHA-256 of the newest batch, to recognise a repeat
)
