"""Kinds that others define, as far as chart and launcher use them: fields of their documentation, no others.

The projects' own CRDs are not at hand here. These refuse what they do not name, so that a field misspelt in a template
is found; they cannot find a field that the projects would refuse for another reason.
"""

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
FLAG = {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
GATEWAY_TIME = {"type": "string", "pattern": r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"}
TIME = {"type": "string", "pattern": r"^[0-9]+(ms|s|m|h|d|w|y)$"}


def many(item, **more):
    return {"type": "array", "items": item, **more}


def some(*required, **fields):
    return {"type": "object", "properties": fields, "required": list(required)}


HTTP_ROUTE = some(
    parentRefs=many(some("name", group=TEXT, kind=TEXT, name=TEXT, namespace=TEXT, sectionName=TEXT, port=NUMBER)),
    hostnames=many(TEXT, maxItems=16),
    rules=many(
        some(
            matches=many(
                some(path=some(type={"enum": ["Exact", "PathPrefix"], **TEXT}, value={"pattern": "^/", **TEXT})),
                maxItems=8,
            ),
            timeouts=some(request=GATEWAY_TIME, backendRequest=GATEWAY_TIME),
            backendRefs=many(some("name", name=TEXT, port=NUMBER)),
        ),
        maxItems=16,
    ),
)
SERVICE_MONITOR = some(
    "selector",
    "endpoints",
    selector=some(
        matchLabels=TEXTS, matchExpressions=many(some("key", "operator", key=TEXT, operator=TEXT, values=many(TEXT)))
    ),
    namespaceSelector=some(matchNames=many(TEXT), any=FLAG),
    endpoints=many(some(port=TEXT, path=TEXT, interval=TIME, scrapeTimeout=TIME)),
)
RULE = some("expr", alert=TEXT, expr=TEXT, labels=TEXTS, annotations=TEXTS, **{"for": TIME})
PROMETHEUS_RULE = some(groups=many(some("name", "rules", name=TEXT, rules=many(RULE))))
CONDITION = some("type", "status", type=TEXT, status=TEXT, reason=TEXT, message=TEXT, lastTransitionTime=TEXT)
WORKLOAD = some(queueName=TEXT, active=FLAG, priorityClassName=TEXT)
KINDS = {
    "HTTPRoute": ("gateway.networking.k8s.io", "v1", "httproutes", HTTP_ROUTE),
    "ServiceMonitor": ("monitoring.coreos.com", "v1", "servicemonitors", SERVICE_MONITOR),
    "PrometheusRule": ("monitoring.coreos.com", "v1", "prometheusrules", PROMETHEUS_RULE),
    "Workload": ("kueue.x-k8s.io", "v1beta1", "workloads", WORKLOAD),
}
STATUS = some(conditions=many(CONDITION))


def closed(schema):
    """A schema that refuses keys it does not name."""
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if "properties" in found:
        found["properties"] = {key: closed(value) for key, value in schema["properties"].items()}
        found["additionalProperties"] = False
    return found


def schema(kind):
    """The JSON schema of an object of this kind, as the chart may make it."""
    group, version, _, spec = KINDS[kind]
    head = {"apiVersion": {"const": f"{group}/{version}"}, "kind": {"const": kind}, "metadata": {"type": "object"}}
    whole = {"type": "object", "required": [*head, "spec"], "properties": {**head, "spec": spec}}
    return {**closed(whole), "properties": {**head, "spec": closed(spec)}}


def crd(kind):
    """The kind as a CustomResourceDefinition."""
    group, version, plural, spec = KINDS[kind]
    made = {"type": "object", "properties": {"spec": spec, "status": STATUS}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # Gateway API's groups under k8s.io are protected: a cluster asks whether they were approved.
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in of the tests"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": made},
                    "subresources": {"status": {}},
                }
            ],
        },
    }
