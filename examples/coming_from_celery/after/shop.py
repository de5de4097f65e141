"""Sends a receipt and waits for the result. forge_jobs."""

import os

from jobs import build_report, send_receipt

from forge_jobs import SyncJobClient, open_storage

with SyncJobClient(lambda: open_storage(os.environ["FORGE_STORAGE_URL"])) as client:
    receipt = client.enqueue(send_receipt.request(7, "ada@example.org"))
    report = client.enqueue(build_report.request("monday"), delay=1, priority=3)
    print(client.result(receipt.job_id, timeout=60))
    print(client.result(report.job_id, timeout=60))
