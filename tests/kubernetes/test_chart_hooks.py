"""What runs before an upgrade needs nothing that only the upgrade makes; what an install tells people can be typed."""

import base64
import runpy

import pytest
import sqlalchemy
import yaml

from .chart_readme import CHART
from .conftest import LOADER
from .matrix import AFFINITY

URL = "postgresql+psycopg://u:word@h/d"
THEIRS = {"postgresql": {"enabled": False}, "mlflow": {"enabled": False}}
HOOK = "helm.sh/hook"
FLEETING = {"postgresql": {"persistence": {"enabled": False}}}
"""An upgrade of a database on a volume needs the password that only a cluster has."""


def migration(objects):
    return objects["Job", "r-driftline-migration"]["spec"]["template"]["spec"]


def reads(spec, variable="DRIFTLINE_DATABASE_URL"):
    """(Secret, key) of the database's address."""
    env = {item["name"]: item.get("valueFrom", {}).get("secretKeyRef") for item in spec["containers"][0]["env"]}
    return env[variable]["name"], env[variable]["key"]


def test_the_migration_reads_the_address_that_the_upgrade_brings(helm):
    objects = helm.objects({**THEIRS, "database": {"url": URL}}, "--is-upgrade")
    assert reads(migration(objects)) == ("r-driftline-migration", "database-url")
    secret = objects["Secret", "r-driftline-migration"]
    assert base64.b64decode(secret["data"]["database-url"]).decode() == URL
    job = objects["Job", "r-driftline-migration"]["metadata"]["annotations"]
    about = secret["metadata"]["annotations"]
    assert about[HOOK] == job[HOOK] == "post-install,pre-upgrade"
    assert int(about[f"{HOOK}-weight"]) < int(job[f"{HOOK}-weight"])
    assert about[f"{HOOK}-delete-policy"] == "before-hook-creation,hook-succeeded"


@pytest.mark.parametrize(
    ("values", "variable", "expected"),
    [
        (FLEETING, "PGPASSWORD", ("r-driftline", "postgres-password")),
        ({"postgresql": {"existingSecret": "pg"}}, "PGPASSWORD", ("pg", "postgres-password")),
        (
            {**THEIRS, "database": {"existingSecret": "mine", "existingSecretKey": "url"}},
            "DRIFTLINE_DATABASE_URL",
            ("mine", "url"),
        ),
    ],
)
def test_an_address_that_is_there_already_needs_no_secret_of_the_hook(helm, values, variable, expected):
    objects = helm.objects(values, "--is-upgrade")
    assert reads(migration(objects), variable) == expected
    assert ("Secret", "r-driftline-migration") not in objects


def test_before_an_upgrade_nothing_is_used_that_it_would_make(helm):
    """Without a cluster nothing is there yet; tests on a real API look with one."""
    values = {"priorityClasses": {"create": True}, "api": {"affinity": AFFINITY}, **FLEETING}
    first = migration(helm.objects(values))
    assert first["priorityClassName"] == "ns.r-driftline-service"
    assert first["serviceAccountName"] == "r-driftline-service"
    later = migration(helm.objects(values, "--is-upgrade"))
    assert "priorityClassName" not in later
    assert later["serviceAccountName"] == "default"
    assert later["affinity"] == AFFINITY
    assert later["automountServiceAccountToken"] is False


def test_after_an_uninstall_nothing_is_used_that_it_deletes(helm):
    def uninstall(**values):
        objects = helm.objects({"priorityClasses": {"create": True}, **values})
        return objects["Job", "r-driftline-uninstall"]["spec"]["template"]["spec"]

    assert "priorityClassName" not in uninstall()
    assert uninstall(api={"priorityClassName": "mine"})["priorityClassName"] == "mine"


def test_no_hook_runs_in_a_namespace_that_the_upgrade_makes(helm):
    """As one from `studies.launcher: local` does; without a cluster no namespace is there."""

    def hooks(*options, **values):
        text = helm.template({**FLEETING, **values}, *options).stdout
        jobs = [item for item in yaml.load_all(text, LOADER) if item and item.get("spec", {}).get("completions") == 0]
        return {item["metadata"]["namespace"]: item["metadata"]["annotations"][HOOK] for item in jobs}

    both = "pre-upgrade,pre-rollback"
    assert hooks() == {"ns-r-driftline-studies": both}
    assert hooks("--is-upgrade") == {"ns-r-driftline-studies": "pre-rollback"}
    project = {"projects": {"p": {"namespace": "team"}}}
    assert hooks("--is-upgrade", studies=project) == {"ns-r-driftline-studies": "pre-rollback", "team": both}
    assert hooks("--is-upgrade", studies={"namespace": "away"}) == {"away": both}


def test_what_people_name_themselves_is_used_before_an_upgrade_too(helm):
    values = {
        **FLEETING,
        "priorityClasses": {"create": True},
        "api": {"priorityClassName": "mine", "serviceAccount": {"create": False, "name": "our-account"}},
    }
    later = migration(helm.objects(values, "--is-upgrade"))
    assert (later["priorityClassName"], later["serviceAccountName"]) == ("mine", "our-account")


def notes(helm, *settings):
    """What is printed after an install, in paragraphs."""
    options = [word for setting in settings for word in ("--set", setting)]
    done = helm("install", "r", str(CHART), "--namespace", "ns", "--dry-run=client", *options)
    return done.stdout.partition("\nNOTES:\n")[2].split("\n\n")


def test_the_chart_test_is_one_pod(helm):
    """`helm test --logs` asks for the log of a pod for every hook, whatever the hook's kind."""
    objects = helm.objects({})
    tests = [key for key, item in objects.items() if item["metadata"].get("annotations", {}).get(HOOK) == "test"]
    assert tests == [("Pod", "r-driftline-test")]
    (container,) = objects[tests[0]]["spec"]["containers"]
    assert container["command"] == ["python", "-c", (CHART / "files" / "test" / "study.py").read_text()]


def test_the_address_of_mlflows_database_is_no_argument_of_a_process(monkeypatch, tmp_path):
    """It may hold a password, and other users of the node see arguments."""
    url = f"sqlite:///{tmp_path / 'mlflow.db'}"
    with sqlalchemy.create_engine(url).begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE alembic_version (version_num TEXT)"))
    upgraded = []
    monkeypatch.setenv("MLFLOW_DATABASE", url)
    monkeypatch.setattr("mlflow.db.commands", upgraded.append)
    monkeypatch.setattr("subprocess.Popen", lambda *argv, **_: pytest.fail(f"started: {argv}"))
    runpy.run_path(str(CHART / "files" / "mlflow" / "database.py"))
    assert upgraded == [["upgrade", url]]


def test_notes_delete_what_an_uninstall_keeps_in_every_namespace(helm):
    def deletes(*settings):
        return [line[10:] for part in notes(helm, *settings) for line in part.split("\n") if " delete " in line]

    claims = "delete persistentvolumeclaims -l app.kubernetes.io/instance=r"
    project = "studies.projects.p.namespace=team"
    own = "-n ns delete persistentvolumeclaims,secrets -l app.kubernetes.io/instance=r"
    assert deletes() == [own, "delete namespace ns-r-driftline-studies"]
    assert deletes(project) == [own, "delete namespace ns-r-driftline-studies", f"-n team {claims}"]
    assert deletes(project, "studies.namespace=away") == [own, f"-n away {claims}", f"-n team {claims}"]
    assert deletes(project, "studies.namespace=ns", "checkpoints.url=s3://bucket/x") == [own]
