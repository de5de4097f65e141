"""Sends a receipt and waits for the result. Celery."""

from tasks import build_report, send_receipt

receipt = send_receipt.delay(7, "ada@example.org")
report = build_report.apply_async(args=("monday",), countdown=1, priority=3)
print(receipt.get(timeout=60))
print(report.get(timeout=60))
