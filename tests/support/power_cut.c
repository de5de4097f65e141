/* Keeps of each file what it was when it was last synced: what a loss of power would leave of it.
 *
 * Preloaded into a process. The files are those whose path begins with POWER_CUT_OF; their copies
 * are in the folder POWER_CUT_COPIES, and in its file "syncs" each sync is one line. Whoever reads
 * the copies holds the lock of its file "lock", so that they are of one moment.
 *
 * A file is read by the descriptor that was synced. To open and close it anew would drop SQLite's
 * own locks of it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char now[1 << 16], then[1 << 16];

static void must(int is_well, const char *what) {
    if (!is_well) {
        perror(what);
        _exit(70);
    }
}

static int below(const char *folder, const char *name, int flags) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int made = open(path, flags | O_CLOEXEC, 0644);
    must(made >= 0, path);
    return made;
}

static int keep(int synced, long call) {
    const char *of = getenv("POWER_CUT_OF"), *copies = getenv("POWER_CUT_COPIES");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", synced);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0 || !of || !copies) return (int)syscall(call, synced);
    path[length] = 0;
    if (strncmp(path, of, strlen(of))) return (int)syscall(call, synced);
    const char *name = strrchr(path, '/') + 1;

    int lock = below(copies, "lock", O_RDWR | O_CREAT);
    must(flock(lock, LOCK_EX) == 0, "lock");
    int copy = below(copies, name, O_RDWR | O_CREAT);
    struct stat old;
    must(fstat(copy, &old) == 0, name);
    off_t at = 0;
    for (ssize_t size; (size = pread(synced, now, sizeof now, at)) != 0; at += size) {
        must(size > 0, name);
        // Most of a log is as it was.
        if (at + size <= old.st_size && pread(copy, then, size, at) == size && !memcmp(now, then, size))
            continue;
        must(pwrite(copy, now, size, at) == size, name);
    }
    must(ftruncate(copy, at) == 0 && close(copy) == 0, name);
    int log = below(copies, "syncs", O_WRONLY | O_CREAT | O_APPEND);
    must(dprintf(log, "%s\n", name) > 0 && close(log) == 0, "syncs");
    return close(lock);
}

/* A process of a test that was killed goes with it. */
__attribute__((constructor)) static void end_with_the_test(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

int fsync(int synced) { return keep(synced, SYS_fsync); }

int fdatasync(int synced) { return keep(synced, SYS_fdatasync); }
