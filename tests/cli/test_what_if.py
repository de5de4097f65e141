"""``forge-jobs what-if``: an outlook in a sentence, and as JSON."""

from tests.cli.conftest import CommandLine


def test_the_outlook_of_a_queue_without_runs(forge: CommandLine) -> None:
    forge("queues", "set", "mail", "--max-workers", "4")

    told = forge("what-if", "mail", "--objective", "95% within 30s").stdout

    assert told.startswith("mail: no backlog: 95 of 100 jobs start within 0 s\n")
    assert "rests on:  the last 15 min: 0 due a minute, no run ended" in told
    assert "pods: " in told
    document = forge.json("what-if", "mail", "--max-workers", "0")
    assert (document["outlook"]["verdict"], document["pods"]) == ("stands", None)
    document = forge.json("what-if", "mail", "--objective", "95% within 30s")
    assert document["pods"]["pods"] == 1


def test_what_is_no_queue_number_or_objective_is_refused(forge: CommandLine) -> None:
    forge("queues", "set", "mail", "--max-workers", "4")

    assert "no queue 'nowhere'" in forge.refuse("what-if", "nowhere", code=1)
    assert "max_workers" in forge.refuse("what-if", "mail", "--max-workers", "-1")
    assert "objective" in forge.refuse("what-if", "mail", "--objective", "soon")
    assert "arrivals" in forge.refuse("what-if", "mail", "--arrivals", "-2")


def test_the_pods_for_the_queues_own_objective(forge: CommandLine) -> None:
    forge("queues", "set", "mail", "--max-workers", "4", "--objective", "95% within 30s")

    assert "1 pod for 0 workers: 95% within 30s" in forge("what-if", "mail").stdout
    assert "PODS WANTED" in forge("queues", "objectives").stdout
