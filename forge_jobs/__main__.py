"""``python -m forge_jobs``: the same as the command ``forge-jobs``."""

from forge_jobs.cli.main import main

if __name__ == "__main__":
    main()
