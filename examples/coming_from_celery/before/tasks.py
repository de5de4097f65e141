"""The tasks of a small shop, with Celery."""

import os

from celery import Celery
from celery.schedules import crontab

app = Celery("tasks", broker=os.environ["BROKER_URL"], backend=os.environ["BROKER_URL"])
app.conf.task_routes = {"mail.*": {"queue": "mail"}, "report.*": {"queue": "reports"}}
app.conf.timezone = "Europe/Berlin"
app.conf.beat_schedule = {
    "nightly": {"task": "report.daily", "schedule": crontab(minute="30", hour="2")},
}


@app.task(
    name="mail.receipt",
    bind=True,
    acks_late=True,
    reject_on_worker_lost=True,
    autoretry_for=(ConnectionError,),
    max_retries=4,
    retry_backoff=True,
    time_limit=30,
)
def send_receipt(self, order, address):
    if self.request.retries == 0:
        raise ConnectionError("the mail server is busy")
    return f"order {order} -> {address}, in attempt {self.request.retries + 1}"


@app.task(name="report.daily")
def build_report(day="yesterday"):
    return {"report": day}
