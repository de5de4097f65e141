"""A program of a warm pool, for tests: does what the payload says."""

import json
import os
import signal
import sys
import time


def _say(number: object, **words: object) -> None:
    print(json.dumps({"id": number, **words}), flush=True)


def _leave_a_process(mark: str) -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open(mark, "w") as file:
                file.write(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    os.wait()


def _do(number: object, attempt: int, asked: dict[str, object]) -> None:
    if "deaf" in asked:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _leave_a_process(str(asked["deaf"]))
        time.sleep(600)
    if "dies" in asked:
        print("my last words", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if "says" in asked:
        print(asked["says"], flush=True)
        time.sleep(600)
    if "grows" in asked:
        taken = bytearray(b"x") * (300 * 2**20)
        time.sleep(600)
        del taken
    if "tells" in asked:
        _say(number, progress={"current": 1, "total": 2, "message": "half"})
        _say(number, log="a kept line")
    if "fails" in asked:
        _say(number, error=asked["fails"], retry=asked.get("retry", True))
    else:
        _say(number, result=[os.getpid(), attempt, asked.get("value")])
    if "twice" in asked:
        _say(number, result="once more")
    if "quits" in asked:
        sys.exit(0)


def main() -> None:
    """Answer until the end of stdin."""
    for line in sys.stdin:
        job = json.loads(line)
        _do(job["id"], job["attempt"], job["payload"])


if __name__ == "__main__":
    main()
