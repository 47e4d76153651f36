"""What `helm test` runs: wrong tokens are refused, a study runs to its frontier, MLflow has it behind a password."""

import os
import sys
import time
import urllib.error
import urllib.request

import httpx

from driftline import Client, Study

URL, TOKEN, TIMEOUT = os.environ["DRIFTLINE_URL"], os.environ["DRIFTLINE_TOKEN"], float(os.environ["TIMEOUT_S"])
MLFLOW = os.environ.get("MLFLOW_URL", "")
STARTED = time.monotonic()
# No configuration diverges on this task: there is a frontier whatever is drawn.
SPACE = {"client_lr": {"float": [1e-3, 0.1], "log": True}, "server_lr": 0.05, "local_steps": {"choice": [1, 5]}}


def say(text):
    print(f"{time.monotonic() - STARTED:5.0f} s  {text}", flush=True)


def need(right, text):
    if not right:
        sys.exit(f"FAILED: {text}")
    say(text)


def status(url):
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers={"Authorization": "Bearer wrong"}), timeout=20
        ) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


need(httpx.get(f"{URL}/readyz", timeout=20).status_code == 200, "the API is ready")
need(status(f"{URL}/v1/studies") == 401, "a wrong token is refused")
study = Study(
    name=f"helm-test-{int(time.time())}",
    task={"name": "quadratic", "problem": "random", "clients": 4, "dimension": 3},
    methods=[{"label": "fedavg", "name": "fedavg", "space": SPACE}],
    objective={"quality": "train_loss", "cost": "rounds"},
    budget={"trials_per_method": 3, "rounds": 200, "seeds": 1},
)
job = Client(URL, TOKEN).submit(study)
say(f"study {study.name} is submitted; its Ray cluster is started")
job.wait(timeout_s=TIMEOUT)
frontier = job.frontier().data["methods"]["fedavg"]["frontier"]
need(
    len(frontier) >= 1 and all(step["quality"] is not None for step in frontier),
    f"the frontier has {len(frontier)} steps",
)
if MLFLOW:
    need(
        httpx.get(f"{MLFLOW}/api/2.0/mlflow/experiments/search?max_results=5", timeout=20).status_code == 401,
        "MLflow asks for a password",
    )
    account = (os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"])
    while True:
        answer = httpx.get(f"{MLFLOW}/api/2.0/mlflow/experiments/search?max_results=200", auth=account, timeout=20)
        found = [item["name"] for item in answer.json().get("experiments", [])] if answer.status_code == 200 else []
        if any(study.name in name for name in found):
            break
        if time.monotonic() - STARTED > TIMEOUT:
            sys.exit(f"FAILED: MLflow has the study, got status {answer.status_code} and experiments {found}")
        time.sleep(2)
    say("MLflow has the study")
job.delete()
say("passed")
