"""Routes for a study's driver: acquire the study, create trials, report, finish, release.

Every write carries the attempt that `acquire` returned, and the nonce that was sent with it; once another driver has
the study, the answer is 409 "stale-driver". Every request is safe to repeat.
"""

from fastapi import APIRouter

from driftline.wire.driver_messages import (
    Acquire,
    CreateTrials,
    DataUrls,
    Heartbeat,
    HeartbeatAnswer,
    Lease,
    Release,
    Report,
    Results,
    StartPack,
    Stored,
    StorePlan,
)
from driftline.wire.records import StudyPlan, StudyRecord, TrialPage
from service.api.dependencies import AppContext, DrivenStudy, Nonce
from service.api.request_bodies import DriverRoute

ROUTER = APIRouter(prefix="/v1/studies/{study_id}", tags=["driver"], route_class=DriverRoute)


@ROUTER.post("/driver:acquire", operation_id="acquireStudy")
def acquire(study_id: DrivenStudy, body: Acquire, app_context: AppContext, nonce: Nonce = "") -> Lease:
    """Acquire the study under the next attempt; running trials go back to WAITING and keep their curves."""
    return app_context.store.leases.acquire(study_id, body.holder, nonce)


@ROUTER.get("/data-urls", operation_id="getDataUrls")
def data_urls(study_id: DrivenStudy, app_context: AppContext) -> DataUrls:
    """What the URLs of the study's data must begin with."""
    urls = app_context.data_urls
    return DataUrls(prefixes=None if urls is None else list(urls))


@ROUTER.post("/driver:heartbeat", operation_id="heartbeat")
def heartbeat(study_id: DrivenStudy, body: Heartbeat, app_context: AppContext, nonce: Nonce = "") -> HeartbeatAnswer:
    """Renew the lease; the answer says what the study's owner wants."""
    return HeartbeatAnswer(desired=app_context.store.leases.heartbeat(study_id, body.attempt, nonce))


@ROUTER.post("/driver:release", operation_id="releaseStudy")
def release(study_id: DrivenStudy, body: Release, app_context: AppContext, nonce: Nonce = "") -> StudyRecord:
    """Release the study, and say how it ended."""
    app_context.store.leases.release(study_id, body.attempt, body.state, body.reason, nonce=nonce)
    return app_context.store.studies.get(study_id)


@ROUTER.post("/plan", operation_id="storePlan")
def store_plan(study_id: DrivenStudy, body: StorePlan, app_context: AppContext, nonce: Nonce = "") -> StudyPlan:
    """Store how the study's trials are asked for and packed; a change of the plan gives its reason."""
    return app_context.store.plans.put(study_id, body.attempt, body.plan, body.reason, nonce=nonce)


@ROUTER.post("/trials", operation_id="createTrials")
def create_trials(study_id: DrivenStudy, body: CreateTrials, app_context: AppContext, nonce: Nonce = "") -> TrialPage:
    """Create trials; the answer holds them in the order given, including those that existed already."""
    return TrialPage(trials=app_context.store.trials.create(study_id, body.attempt, body.trials, nonce=nonce))


@ROUTER.post("/packs", operation_id="startPack")
def start_pack(study_id: DrivenStudy, body: StartPack, app_context: AppContext, nonce: Nonce = "") -> TrialPage:
    """Mark trials as running in a pack; increases each trial's attempt by 1."""
    return TrialPage(
        trials=app_context.store.trials.start_pack(
            study_id, body.attempt, body.pack, body.trials, body.gpus, nonce=nonce
        )
    )


@ROUTER.post("/reports", operation_id="reportPack")
def report(study_id: DrivenStudy, body: Report, app_context: AppContext, nonce: Nonce = "") -> Stored:
    """Store a pack's new reports; upserted on (trial, round)."""
    body.check_blocks(app_context.limits.body_bytes)
    return app_context.store.curves.report(study_id, body, nonce=nonce)


@ROUTER.post("/results", operation_id="finishTrials")
def finish(study_id: DrivenStudy, body: Results, app_context: AppContext, nonce: Nonce = "") -> Stored:
    """Store how trials ended; state WAITING hands a trial back. Finished states are final."""
    return app_context.store.trials.finish(study_id, body.attempt, body.results, nonce=nonce)
