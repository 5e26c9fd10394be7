"""From the commit that ends a job to a settled delivery: nothing lost, one delivery for each event."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings

from dispatch import services
from dispatch.access import Caller
from dispatch.clock import store_now
from dispatch.errors import IdempotencyConflict, Invalid
from dispatch.models import Outcome, WebhookDelivery, WebhookWatch, WorkItem
from dispatch.specs import DispatchSpec
from dispatch.states import Verb
from dispatch.webhooks import outbox
from dispatch.webhooks.endpoints import endpoint_add, endpoint_remove, endpoint_rotate, secrets_of
from dispatch.webhooks.outbox import News
from dispatch.webhooks.posting import Posted
from dispatch.webhooks.sender import Senders
from dispatch.webhooks.signing import secret_of, signature
from tests.dispatch.authority import world
from tests.support.processes import until
from tests.support.receiver import Receiver

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]

URL = "https://ci.example.org/hooks"
MINE = Caller(tenant="t1", name="me", kind="api_key", scopes=frozenset({"read", "dispatch"}))
TAKEN, FAILED = Posted(status=200), Posted(status=500)


@pytest.fixture(autouse=True)
def endpoint(world: None) -> None:
    endpoint_add(tenant="t1", url=URL)


def dispatch(url: str | None = f"{URL}/job?build=1", **body: Any) -> WorkItem:
    more = {} if url is None else {"callback_url": url}
    spec = DispatchSpec.parse({"task": "a secret task", "agent_name": "echo", **more, **body})
    return WorkItem.objects.get(job_id=services.job_dispatch(caller=MINE, spec=spec).handle["job_id"])


def told() -> list[str]:
    News().look()
    return list(WebhookDelivery.objects.order_by("pk").values_list("event", flat=True))


def hurry() -> None:
    WebhookDelivery.objects.exclude(due_at=None).update(due_at=store_now())


# -- what is told ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("verb", [Verb.SUCCEEDED, Verb.FAILED, Verb.CANCELLED, Verb.DEAD_LETTER])
def test_every_end_is_told_once_with_references_and_its_status(verb: str) -> None:
    item = dispatch()
    assert told() == []
    world.run(item, verb, code="agent_error", message="it broke")
    assert told() == [f"job.{verb}"]
    assert told() == [f"job.{verb}"], "a second look finds nothing new"
    body = json.loads(WebhookDelivery.objects.get().body)
    assert set(body) == {"type", "timestamp", "data"}
    assert body["data"] == {
        "job_id": item.job_id,
        "session_id": item.session.session_id,
        "kind": "orchestrator_task",
        "status": verb,
        "payload_ref": item.job_id,
        "result_ref": f"outcome:{Outcome.objects.get().pk}",
    }
    assert "secret" not in WebhookDelivery.objects.get().body


def test_a_job_that_is_cancelled_before_it_ran_is_told() -> None:
    item = dispatch()
    services.job_cancel(caller=MINE, job_id=item.job_id)
    assert told() == ["job.cancelled"]


def test_each_question_and_the_end_are_told_and_a_wait_for_children_is_not() -> None:
    item = dispatch(session_id="s")
    world.run(item, Verb.SUSPEND, code="input", question="which colour?")
    assert told() == ["job.suspended"]
    services.session_reply(caller=MINE, session_id="s", text="red", choice=None)
    world.run(item, Verb.SUSPEND, code="input", question="sure?")
    services.session_reply(caller=MINE, session_id="s", text="yes", choice=None)
    assert told() == ["job.suspended", "job.suspended"], "also one that was answered before anybody looked"
    child = dispatch(None)
    world.run(item, Verb.SUSPEND, code="children", wait_for=(child.job_id,))
    assert told() == ["job.suspended", "job.suspended"]
    world.run(child, Verb.SUCCEEDED)
    world.run(item, Verb.SUCCEEDED)
    assert told() == ["job.suspended", "job.suspended", "job.succeeded"]
    assert "result_ref" not in WebhookDelivery.objects.order_by("pk")[0].body


def test_a_retry_and_a_second_end_are_told_anew() -> None:
    item = dispatch()
    world.run(item, Verb.FAILED, code="agent_error")
    assert told() == ["job.failed"]
    assert WebhookWatch.objects.get().done_at is not None
    services.job_retry(caller=MINE, job_id=item.job_id)
    assert WebhookWatch.objects.get().done_at is None
    world.run(item, Verb.SUCCEEDED)
    assert told() == ["job.failed", "job.succeeded"]


def test_a_retry_between_look_and_mark_keeps_its_job_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    item = dispatch()
    world.run(item, Verb.FAILED, code="agent_error")
    deliver = outbox._deliver

    def late(watch: WebhookWatch, news: Any) -> int:
        services.job_retry(caller=MINE, job_id=item.job_id)
        return deliver(watch, news)

    monkeypatch.setattr(outbox, "_deliver", late)
    assert told() == []
    monkeypatch.undo()
    world.run(item, Verb.SUCCEEDED)
    assert told() == ["job.failed", "job.succeeded"], "both, and none is lost"


def test_of_two_who_look_at_once_one_makes_the_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(dispatch(), Verb.SUCCEEDED)
    deliver = outbox._deliver

    def second(watch: WebhookWatch, news: Any) -> int:
        return deliver(watch, news) + deliver(watch, news)

    monkeypatch.setattr(outbox, "_deliver", second)
    assert told() == ["job.succeeded"]


def test_many_watches_are_looked_at_a_window_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "WINDOW", 2)
    monkeypatch.setattr(outbox, "ROUND_S", 0.0)
    items = [dispatch() for _ in range(5)]
    world.run(items[4], Verb.SUCCEEDED)
    news = News()
    assert [news.look() for _ in range(3)] == [0, 0, 1], "it goes on where it was, and comes to the last"


# -- where it is written -----------------------------------------------------------------------------------------------
def test_the_watch_is_of_the_commit_of_the_job() -> None:
    with world.undone():
        dispatch()
    assert not WebhookWatch.objects.exists()
    assert not WorkItem.objects.exists()
    dispatch(None)
    assert not WebhookWatch.objects.exists(), "who asks for nothing costs nothing"


def test_a_repeat_is_watched_once_and_another_address_is_a_conflict() -> None:
    dispatch(idempotency_key="k")
    dispatch(idempotency_key="k")
    assert WebhookWatch.objects.count() == 1
    with pytest.raises(IdempotencyConflict):
        dispatch(f"{URL}/other", idempotency_key="k")


def test_who_coalesces_into_a_turn_is_told_of_it() -> None:
    dispatch(None, session_id="s")
    second = dispatch(None, session_id="s")
    dispatch(session_id="s", on_busy="coalesce")
    assert WebhookWatch.objects.get().work_item_id == second.pk


@pytest.mark.parametrize(
    "url", ["https://evil.example.org/", "https://ci.example.org/hooksx", "https://ci.example.org"]
)
def test_an_address_under_no_endpoint_of_the_tenant_is_refused_and_leaves_no_row(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        dispatch(url)
    assert "webhooks add" in caught.value.fields["callback_url"]
    assert not WorkItem.objects.exists()
    endpoint_add(tenant="t2", url="https://evil.example.org/")
    with pytest.raises(Invalid):
        dispatch(url)


def test_each_of_many_has_its_own_callback() -> None:
    bodies = [
        {"task": "a", "callback_url": URL},
        {"task": "b", "callback_url": "https://evil.example.org/"},
        {"task": "c"},
    ]
    specs = [DispatchSpec.parse({"agent_name": "echo", **body}) for body in bodies]
    answers = services.job_dispatch_many(caller=MINE, specs=specs)
    assert ["code" in answer for answer in answers] == [False, True, False]
    assert WebhookWatch.objects.count() == 1


def test_what_hangs_on_a_removed_endpoint_goes_with_it() -> None:
    world.run(dispatch(), Verb.SUCCEEDED)
    told()
    endpoint_remove(tenant="t1", url=URL)
    assert not WebhookDelivery.objects.exists()
    assert not WebhookWatch.objects.exists()


def test_retention_takes_a_job_with_its_deliveries() -> None:
    item = dispatch()
    world.run(item, Verb.SUCCEEDED)
    told()
    removed = world.authority().removal.jobs({item.pk: world.fresh(item).epoch}, keep_turns=0, allowed=lambda: True)
    assert (removed["webhook_deliveries"], removed["webhook_watches"]) == (1, 1)


# -- sending -----------------------------------------------------------------------------------------------------------
def one() -> WebhookDelivery:
    world.run(dispatch(), Verb.SUCCEEDED)
    told()
    return WebhookDelivery.objects.get()


def test_a_delivery_is_claimed_by_one_and_again_when_its_lease_is_over() -> None:
    delivery = one()
    first = outbox.claim(lease_s=60)
    assert first is not None
    assert outbox.claim(lease_s=60) is None
    hurry()
    second = outbox.claim(lease_s=60)
    assert second is not None
    assert (first.tries, second.tries) == (1, 2)
    assert second.delivery.delivery_id == delivery.delivery_id
    outbox.settle(first, FAILED, most=1)
    assert WebhookDelivery.objects.get().state == "pending", "who lost its lease writes nothing"
    assert outbox.settle(second, TAKEN, most=9) == "delivered"
    assert WebhookDelivery.objects.get().delivered_at is not None
    assert not outbox.is_due()


def test_what_fails_waits_longer_each_time_and_is_dead_at_the_end() -> None:
    one()
    waits = []
    for number in range(1, 4):
        hurry()
        claimed = outbox.claim(lease_s=60)
        assert claimed is not None
        state = outbox.settle(claimed, FAILED, most=3, jitter=1.0)
        assert state == ("dead" if number == 3 else "pending")
        due_at = WebhookDelivery.objects.get().due_at
        waits.append(due_at and round((due_at - store_now()).total_seconds()))
    assert waits == [5, 10, None]
    delivery = WebhookDelivery.objects.get()
    assert (delivery.state, delivery.tries, delivery.last_status) == ("dead", 3, 500)
    hurry()
    assert outbox.claim(lease_s=60) is None


def test_a_receiver_that_is_gone_is_not_asked_again() -> None:
    one()
    claimed = outbox.claim(lease_s=60)
    assert claimed is not None
    assert outbox.settle(claimed, Posted(status=410), most=9) == "dead"


def test_a_busy_endpoint_does_not_hold_up_the_others() -> None:
    first = one()
    endpoint_add(tenant="t1", url="https://other.example.org/")
    world.run(dispatch("https://other.example.org/"), Verb.SUCCEEDED)
    told()
    claimed = outbox.claim(lease_s=60, busy=[first.watch.endpoint_id])
    assert claimed is not None
    assert claimed.delivery.watch.url == "https://other.example.org/"


@pytest.fixture
def private(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = settings.FLEETSITE.model_copy(update={"webhook_allow_private": True})
    monkeypatch.setattr(settings, "FLEETSITE", allowed)


def senders(**more: Any) -> Senders:
    return Senders(**{"timeout_s": 5, "most_tries": 9, "allow_private": True, "version": "1", **more})


@pytest.mark.usefixtures("private")
def test_sent_signed_and_tried_again_under_one_id_until_it_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with Receiver(500, 302, 200) as receiver:
        _, secret = endpoint_add(tenant="t1", url=receiver.url)
        item = dispatch(f"{receiver.url}?token=hush")
        world.run(item, Verb.SUCCEEDED)
        told()
        for _ in range(3):
            hurry()
            assert senders().send_one()
        assert not senders().send_one()
    assert WebhookDelivery.objects.get().state == "delivered"
    assert len(receiver.calls) == 3
    assert len({call.id for call in receiver.calls}) == 1
    for call in receiver.calls:
        at = int(call.headers["webhook-timestamp"])
        expected = signature(delivery_id=call.id, at=at, body=call.raw, secret=secret)
        assert call.headers["webhook-signature"] == expected
        assert call.body["data"]["job_id"] == item.job_id
    logged = "\n".join(str(vars(record)) for record in caplog.records)
    assert "webhook sent" in logged
    for hidden in (secret, secret.removeprefix("whsec_"), "hush", "a secret task"):
        assert hidden not in logged


@pytest.mark.usefixtures("private")
def test_without_the_setting_a_private_address_is_never_called() -> None:
    with Receiver() as receiver:
        endpoint_add(tenant="t1", url=receiver.url)
        world.run(dispatch(receiver.url), Verb.SUCCEEDED)
        told()
        assert senders(allow_private=False).send_one()
    assert receiver.calls == []
    assert WebhookDelivery.objects.get().last_error == "address refused"


@pytest.mark.usefixtures("private")
def test_the_threads_send_all_that_is_due_and_end() -> None:
    with Receiver() as receiver:
        endpoint_add(tenant="t1", url=receiver.url)
        for _ in range(6):
            world.run(dispatch(receiver.url), Verb.SUCCEEDED)
        told()
        sending = senders()
        assert sending.kick() > 0
        receiver.wait_for(6)
        until(lambda: sending._running == 0, 20, "the threads end")
    assert len({call.id for call in receiver.calls}) == 6
    assert set(WebhookDelivery.objects.values_list("state", flat=True)) == {"delivered"}
    assert senders().kick() == 0


def test_a_new_secret_signs_beside_the_old_one_for_a_while() -> None:
    endpoint, old = endpoint_add(tenant="t1", url="https://rotated.example.org/")
    new = endpoint_rotate(tenant="t1", url=endpoint.url, keep=timedelta(hours=1))
    endpoint.refresh_from_db()
    now = store_now()
    assert secrets_of(endpoint, now) == [new, old]
    assert secrets_of(endpoint, now + timedelta(hours=2)) == [new]
    assert old == secret_of(settings.SECRET_KEY, endpoint.old_salt)


def test_no_secret_is_stored() -> None:
    endpoint, secret = endpoint_add(tenant="t1", url="https://kept.example.org/")
    assert secret not in str(vars(endpoint))
    assert secret.removeprefix("whsec_") not in str(vars(endpoint))
