"""What a RayJob owns, and the garbage collector of Kubernetes."""

from service.launchers.kubernetes import launcher


class SlowCollector:
    """An API server whose garbage collector deletes what was there, after it has changed."""

    def __init__(self, there):
        self.objects = set(there)
        self._condemned = set(there)

    def apply(self, kind, body):
        created = kind not in self.objects
        self.objects.add(kind)
        return created

    def sleep(self, seconds):
        assert seconds > 0
        self.objects -= self._condemned
        self._condemned = set()


def test_an_object_of_a_deleted_rayjob_is_created_again_after_the_garbage_collector(monkeypatch):
    api = SlowCollector(["serviceaccounts"])
    monkeypatch.setattr(launcher.time, "sleep", api.sleep)
    launcher._own(api, {"serviceaccounts": {}, "secrets": {}}, new=True)
    assert api.objects == {"serviceaccounts", "secrets"}


def test_what_a_living_rayjob_owns_is_applied_without_waiting(monkeypatch):
    api = SlowCollector([])
    api.objects = {"secrets"}
    monkeypatch.setattr(launcher.time, "sleep", lambda seconds: 1 / 0)
    launcher._own(api, {"secrets": {}}, new=False)
    assert api.objects == {"secrets"}
