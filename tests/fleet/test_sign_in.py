"""The sign-in: who guesses passwords is locked out for a while, and nobody else is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

pytestmark = [pytest.mark.django_db, pytest.mark.store]

PASSWORD = "a long enough passphrase"
HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"


@pytest.fixture(autouse=True)
def ann() -> User:
    return User.objects.create_superuser("ann", password=PASSWORD)


def sign_in(password: str, *, name: str = "ann", address: str = HERE) -> Any:
    sent = {"username": name, "password": password}
    return Client(REMOTE_ADDR=address).post(reverse("admin:login"), sent)


def guess(times: int) -> list[int]:
    return [sign_in(f"guess {n}").status_code for n in range(times)]


def test_nine_wrong_passwords_and_the_right_one_open(client: Client) -> None:
    assert guess(9) == [200] * 9
    assert sign_in(PASSWORD).status_code == 302
    assert not AccessAttempt.objects.exists(), "they are forgotten then"


def test_the_tenth_locks_out_even_the_right_one_and_says_for_how_long() -> None:
    assert guess(10)[-1] == 429
    answer = sign_in(PASSWORD)
    assert answer.status_code == 429
    assert answer["Retry-After"] == "900"
    assert "15 minutes" in answer.content.decode()
    assert PASSWORD not in answer.content.decode()


def test_others_and_other_addresses_sign_in_meanwhile() -> None:
    guess(10)
    User.objects.create_superuser("bob", password=PASSWORD)
    assert sign_in(PASSWORD, name="bob").status_code == 302
    assert sign_in(PASSWORD, address=ELSEWHERE).status_code == 302


def test_a_quarter_of_an_hour_later_it_opens_again_whatever_was_tried_meanwhile() -> None:
    guess(12)
    AccessAttempt.objects.update(
        attempt_time=AccessAttempt.objects.get().attempt_time - timedelta(minutes=15, seconds=1)
    )
    assert sign_in(PASSWORD).status_code == 302


def test_somebody_on_the_server_ends_the_wait() -> None:
    guess(10)
    call_command("axes_reset_username", "ann")
    assert sign_in(PASSWORD).status_code == 302


def test_a_password_is_not_kept_of_a_wrong_try() -> None:
    sign_in("what they typed")
    (kept,) = AccessAttempt.objects.values_list("post_data", "get_data", "path_info")
    assert "what they typed" not in str(kept)
