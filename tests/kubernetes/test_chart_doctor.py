"""What `driftline doctor kubernetes` reads from the chart's own manifests."""

from service.launchers.kubernetes.doctor import diagnose, read_manifest
from service.launchers.kubernetes.doctor.rights import LAUNCHER
from tests.kubernetes_launcher.fake_cluster import WELL, FakeApi, resources


def _knowing(objects):
    """Answers of a cluster that knows the kinds of these objects, by plain plurals."""
    kinds = {}
    for one in objects:
        kinds.setdefault(one["apiVersion"], set()).add(one["kind"])
    answers = dict(WELL)
    for version, names in kinds.items():
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        answers[path] = resources(*((kind, f"{kind.lower()}s") for kind in names))
    return answers


def test_the_settings_and_the_claims_of_a_release_are_checked(helm):
    values = {"studies": {"workers": {"gpus": 2}, "queue": "gpus"}, "api": {"autoscaling": {"enabled": True}}}
    release = read_manifest(helm.template(values).stdout)
    seen = {one.check: one for one in diagnose(FakeApi(_knowing(release.objects)), release)}
    assert "2 nvidia.com/gpu" in seen["worker nodes"].text
    claims = {check for check in seen if check.startswith("storage ")}
    assert claims == {f"storage r-driftline-{name}" for name in ("checkpoints", "mlflow-artifacts", "postgresql")}
    assert seen["storage r-driftline-checkpoints"].status == "problem"  # ReadWriteMany on EBS
    assert seen["storage r-driftline-postgresql"].status == "ok"
    assert {seen[check].status for check in ("kueue", "metrics")} == {"problem"}
    assert "ns-r-driftline-studies" in seen["rayjob"].text
    restored = seen["restored backup"]
    assert "revoked after the backup are valid again" in restored.text
    assert "driftline token revoke ID" in restored.advice


def test_the_rights_of_the_launcher_are_those_of_the_charts_role(helm):
    rules = helm.objects({})["Role", "r-driftline-scheduler"]["rules"]
    given = {
        (group, resource): set(rule["verbs"])
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    own = {key: verbs for key, verbs in given.items() if key[1] not in ("serviceaccounts", "networkpolicies")}
    assert own == {key: set(verbs) for key, verbs in LAUNCHER.items()}


def test_an_account_that_may_do_nothing_lacks_a_right_on_each_kind(helm):
    release = read_manifest(helm.template({}).stdout)
    answers = _knowing(release.objects)
    needed = set()

    def refuse(asked):
        needed.add((asked["namespace"], asked["resource"]))
        return False

    list(diagnose(FakeApi(answers, refuse), release))
    for one in release.objects:
        if one["kind"] != "Namespace":
            assert (one["metadata"]["namespace"], f"{one['kind'].lower()}s") in needed
