"""Labels: the names of pods for people."""

import pytest

from forge_jobs.errors import InvalidInput
from forge_jobs.model.ids import HostId, new_host_id
from forge_jobs.runtime.pod.labels import pod_label

HOST = HostId("01K0000000000000000000ZZZZ")


def test_without_a_prefix_and_an_id_there_is_no_label() -> None:
    assert pod_label(HOST, version="7") == ""


def test_an_id_alone_is_a_label_too() -> None:
    assert pod_label(HOST, worker_id="a") == "worker-a"
    assert pod_label(HOST, version="7", worker_id="a") == "worker-7-a"


def test_the_label_names_prefix_version_and_id() -> None:
    assert pod_label(HOST, prefix="shop", version="1.4", worker_id="a") == "shop-worker-1.4-a"


def test_an_unset_version_is_left_out() -> None:
    assert pod_label(HOST, prefix="shop", worker_id="a") == "shop-worker-a"


def test_an_unset_id_is_four_hex_digits_of_the_host_id() -> None:
    assert pod_label(HOST, prefix="shop", version="1.4") == "shop-worker-1.4-ffff"


def test_pods_that_boot_together_have_different_labels() -> None:
    labels = {pod_label(new_host_id(), prefix="shop") for _ in range(20)}

    assert len(labels) == 20


def test_a_label_that_is_no_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match="label"):
        pod_label(HOST, prefix="a,b")
