/*
 * test_atomic.c -- the old content or the new, whatever fails and whenever
 */
#include "io/atomic.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file_io.h"
#include "support/expect.h"
#include "support/scratch.h"

static char path[4096];

static void put(const char *file, const char *text)
{
    expect_ok(td_file_write(file, text, strlen(text)));
}

/* does `file` hold exactly this? */
static bool holds(const char *file, const char *text)
{
    char *bytes;
    size_t n;
    if (td_file_read(file, (size_t)1 << 30, &bytes, &n) != TD_OK)
        return false;
    bool same = n == strlen(text) && memcmp(bytes, text, n) == 0;
    td_free(bytes);
    return same;
}

static int count_open_files(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "%s/file", td_scratch_folder());
    return 0;
}

/* --- ordinary use ---------------------------------------------------------------------------- */

static void save_and_replace(void **state)
{
    (void)state;
    expect_ok(td_atomic_save(path, "one", 3));
    assert_true(holds(path, "one"));
    expect_ok(td_atomic_save(path, "", 0));
    assert_true(holds(path, ""));

    td_atomic *a;
    expect_ok(td_atomic_open(path, &a));
    expect_ok(td_atomic_write(a, "tw", 2));
    expect_ok(td_atomic_write(a, NULL, 0));
    expect_ok(td_atomic_write(a, "o", 1));
    assert_true(holds(path, ""));
    expect_ok(td_atomic_commit(a));
    assert_true(holds(path, "two"));
    td_atomic_close(a);
    td_atomic_close(NULL);
    assert_int_equal(td_scratch_count(".tmp."), 0);
}

static void close_without_commit(void **state)
{
    (void)state;
    td_atomic *a;
    put(path, "old");
    expect_ok(td_atomic_open(path, &a));
    expect_ok(td_atomic_write(a, "new", 3));
    assert_int_equal(td_scratch_count(".tmp."), 1);
    td_atomic_close(a);
    assert_true(holds(path, "old"));
    assert_int_equal(td_scratch_count(".tmp."), 0);
}

static void path_without_folder(void **state)
{
    (void)state;
    char here[4096];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(td_scratch_folder()), 0);
    expect_ok(td_atomic_save("bare", "x", 1));
    assert_true(holds("bare", "x"));
    assert_int_equal(unlink("bare"), 0);
    assert_int_equal(chdir(here), 0);
}

static mode_t mode_of(const char *file)
{
    struct stat s;
    assert_int_equal(lstat(file, &s), 0);
    return s.st_mode;
}

static void permissions_and_links(void **state)
{
    (void)state;
    mode_t old = umask(022);
    unlink(path);
    expect_ok(td_atomic_save(path, "x", 1));
    assert_int_equal(mode_of(path) & 0777, 0644);
    assert_int_equal(chmod(path, 0600), 0);
    expect_ok(td_atomic_save(path, "y", 1));
    assert_int_equal(mode_of(path) & 0777, 0600);
    umask(old);

    const char *link = td_scratch_path("link");
    assert_int_equal(symlink("file", link), 0);
    expect_ok(td_atomic_save(link, "z", 1));
    assert_true(S_ISREG(mode_of(link)));
    assert_true(holds(path, "y"));
    unlink(link);
    unlink(path);
}

static void refused_paths(void **state)
{
    (void)state;
    td_atomic *a;
    expect_error(td_atomic_open("", &a), TD_EIO, "': not a file name");
    assert_null(a);
    expect_error(td_atomic_open("folder/", &a), TD_EIO, "': not a file name");
    expect_error(td_atomic_open("/dev/null", &a), TD_EIO, "not a regular file");
    expect_error(td_atomic_open(td_scratch_folder(), &a), TD_EIO, "it is a folder");
    expect_error(td_atomic_open(td_scratch_path("absent/x"), &a), TD_EIO, "its folder");
    expect_error(td_atomic_open("/proc/x", &a), TD_EIO, "cannot write");
    assert_true(S_ISCHR(mode_of("/dev/null")));
}

/* --- temporaries of others ------------------------------------------------------------------- */

static pid_t dead_pid(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return pid;
}

static void temp_name(char *out, size_t n, const char *tail)
{
    snprintf(out, n, "%s.tmp.%s", path, tail);
}

static void stale_temporaries(void **state)
{
    (void)state;
    char dead[4200], self[4200], alive[4200], letters[4200], other[4200], pid[32];

    snprintf(pid, sizeof pid, "%ld", (long)dead_pid());
    temp_name(dead, sizeof dead, pid);
    snprintf(other, sizeof other, "%s/file2.tmp.%s", td_scratch_folder(), pid);
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    temp_name(self, sizeof self, pid);
    snprintf(pid, sizeof pid, "%ld", (long)getppid());
    temp_name(alive, sizeof alive, pid);
    temp_name(letters, sizeof letters, "12x");
    const char *all[] = { dead, self, alive, letters, other };
    for (size_t i = 0; i < 5; i++)
        put(all[i], "junk");

    expect_ok(td_atomic_save(path, "new", 3));
    assert_true(holds(path, "new"));
    assert_int_not_equal(access(dead, F_OK), 0);
    assert_int_not_equal(access(self, F_OK), 0);
    for (size_t i = 2; i < 5; i++) {
        assert_true(holds(all[i], "junk"));
        unlink(all[i]);
    }
}

/* a pid means nothing to another container, the lock does */
static void dead_pid_but_held(void **state)
{
    (void)state;
    char temp[4200], pid[32];
    td_atomic *a, *b;

    expect_ok(td_atomic_open(path, &a));
    expect_ok(td_atomic_write(a, "aa", 2));
    snprintf(pid, sizeof pid, "%ld", (long)dead_pid());
    temp_name(temp, sizeof temp, pid);
    char own[4200];
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    temp_name(own, sizeof own, pid);
    assert_int_equal(rename(own, temp), 0);

    expect_ok(td_atomic_open(path, &b));
    assert_int_equal(access(temp, F_OK), 0);
    td_atomic_close(b);
    assert_int_equal(rename(temp, own), 0);
    expect_ok(td_atomic_commit(a));
    assert_true(holds(path, "aa"));
    td_atomic_close(a);
}

static void two_writers(void **state)
{
    (void)state;
    td_atomic *a, *b;
    expect_ok(td_atomic_open(path, &a));
    expect_error(td_atomic_open(path, &b), TD_EIO, "another process is writing it");
    assert_null(b);
    expect_ok(td_atomic_write(a, "mine", 4));
    expect_ok(td_atomic_commit(a));
    td_atomic_close(a);
    assert_true(holds(path, "mine"));
}

/* --- system calls that fail ------------------------------------------------------------------ */

typedef enum { CALL_OPEN, CALL_WRITE, CALL_FSYNC, CALL_RENAME, CALL_CLOSE, N_CALLS } call;

enum { SHORT_WRITE = -1, EMPTY_WRITE = -2 }; /* in place of an errno */

static int n_calls, fail_at, fail_with;
static call fail_call; /* what the failing call was */

static bool fails(call c)
{
    if (++n_calls != fail_at)
        return false;
    fail_call = c;
    errno = fail_with > 0 ? fail_with : 0;
    return true;
}

static int shim_open(const char *file, int flags, mode_t mode)
{
    return fails(CALL_OPEN) && fail_with > 0 ? -1 : open(file, flags, mode);
}

static ssize_t shim_write(int fd, const void *bytes, size_t n)
{
    if (!fails(CALL_WRITE))
        return write(fd, bytes, n);
    if (fail_with == SHORT_WRITE)
        return write(fd, bytes, (n + 1) / 2);
    return fail_with == EMPTY_WRITE ? 0 : -1;
}

static int shim_fsync(int fd)
{
    return fails(CALL_FSYNC) && fail_with > 0 ? -1 : fsync(fd);
}

static int shim_rename(const char *from, const char *to)
{
    return fails(CALL_RENAME) && fail_with > 0 ? -1 : rename(from, to);
}

/* as on Linux: the file is closed whatever close says */
static int shim_close(int fd)
{
    bool is_bad = fails(CALL_CLOSE) && fail_with > 0;
    int saved = errno, rc = close(fd);
    errno = saved;
    return is_bad ? -1 : rc;
}

static const td_atomic_calls shim = {
    .open = shim_open,
    .write = shim_write,
    .fsync = shim_fsync,
    .rename = shim_rename,
    .close = shim_close,
};

static td_status save_in_three(void)
{
    td_atomic *a;
    td_status st = td_atomic_open(path, &a);
    if (st == TD_OK)
        st = td_atomic_write(a, "new ", 4);
    if (st == TD_OK)
        st = td_atomic_write(a, "content, ", 9);
    if (st == TD_OK)
        st = td_atomic_write(a, "longer", 6);
    if (st == TD_OK)
        st = td_atomic_commit(a);
    td_atomic_close(a);
    return st;
}

/* one save whose `at`-th system call fails; false when there were fewer */
static bool save_with_failure(int at, int with)
{
    int n_open = count_open_files();
    int64_t live = td_alloc_live();

    put(path, "old");
    td_error_clear();
    n_calls = 0;
    fail_at = at;
    fail_with = with;
    fail_call = N_CALLS;
    td_atomic_set_calls(&shim);
    td_status st = save_in_three();
    td_atomic_set_calls(NULL);

    bool is_new = holds(path, "new content, longer");
    assert_true(is_new || holds(path, "old"));
    assert_int_equal(td_scratch_count(".tmp."), 0);
    assert_int_equal(count_open_files(), n_open);
    assert_int_equal(td_alloc_live(), live);
    if (st == TD_OK) {
        assert_true(is_new);
        assert_true(fail_call == N_CALLS || with == SHORT_WRITE || with == EINTR ||
                    (with == EMPTY_WRITE && fail_call != CALL_WRITE) || fail_call == CALL_CLOSE ||
                    (with == EINVAL && fail_call == CALL_FSYNC));
    } else {
        assert_int_equal(st, TD_EIO);
        assert_non_null(strstr(td_error_message(), path));
        assert_true(!is_new || fail_call == CALL_FSYNC);
        if (with > 0)
            assert_non_null(strstr(td_error_message(), strerror(with)));
        if (is_new)
            assert_non_null(strstr(td_error_message(), "flush of its folder"));
        assert_true(with != SHORT_WRITE && (with != EINTR || fail_call == CALL_RENAME));
    }
    return fail_call != N_CALLS;
}

static void every_call_fails(void **state)
{
    (void)state;
    static const int with[] = { ENOSPC, EIO,   EDQUOT, EROFS,       EFBIG,
                                EACCES, EINTR, ENOMEM, SHORT_WRITE, EMPTY_WRITE };
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        int at = 1;
        while (save_with_failure(at, with[i]))
            at++;
        /* 2 open, 3 write, 2 fsync, 1 rename, 2 close; a short write takes one more */
        assert_true(at - 1 >= 10);
    }
}

static void folder_that_cannot_be_flushed(void **state)
{
    (void)state;
    int n_fsync_errors = 0;
    for (int at = 1; save_with_failure(at, EINVAL); at++)
        if (fail_call == CALL_FSYNC && holds(path, "old"))
            n_fsync_errors++;
        else if (fail_call == CALL_FSYNC)
            assert_string_equal(td_error_message(), "");
    assert_int_equal(n_fsync_errors, 1); /* the file's; EINVAL of the folder's is no failure */
}

static void writes_after_a_failure(void **state)
{
    (void)state;
    td_atomic *a;
    put(path, "old");
    expect_ok(td_atomic_open(path, &a));
    n_calls = 0;
    fail_at = 1;
    fail_with = ENOSPC;
    td_atomic_set_calls(&shim);
    expect_error(td_atomic_write(a, "x", 1), TD_EIO, "No space left");
    td_atomic_set_calls(NULL);
    expect_error(td_atomic_write(a, "x", 1), TD_EIO, "an earlier write failed");
    expect_error(td_atomic_commit(a), TD_EIO, "an earlier write failed");
    td_atomic_close(a);
    assert_true(holds(path, "old"));
    assert_int_equal(td_scratch_count(".tmp."), 0);
}

static void allocation_failures(void **state)
{
    (void)state;
    int64_t live = td_alloc_live();
    int n_open = count_open_files(), n_failed = 0;
    char stale[4200], pid[32];

    put(path, "old");
    for (int n = 1;; n++) {
        snprintf(pid, sizeof pid, "%ld", (long)dead_pid());
        temp_name(stale, sizeof stale, pid);
        put(stale, "junk");
        td_alloc_fail_at(n);
        td_status st = save_in_three();
        td_alloc_fail_at(0);
        unlink(stale);
        assert_int_equal(td_alloc_live(), live);
        assert_int_equal(count_open_files(), n_open);
        assert_int_equal(td_scratch_count(".tmp."), 0);
        if (st == TD_OK)
            break;
        assert_int_equal(st, TD_ENOMEM);
        assert_true(holds(path, "old"));
        n_failed++;
    }
    assert_true(n_failed >= 4);
    assert_true(holds(path, "new content, longer"));
}

/* --- full disks and sudden ends -------------------------------------------------------------- */

static char big[40000];

static void file_size_limit(void **state)
{
    (void)state;
    struct rlimit old, low;
    put(path, "old");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = 1000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    td_status st = td_atomic_save(path, big, sizeof big);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    expect_error(st, TD_EIO, "File too large");
    assert_true(holds(path, "old"));
    assert_int_equal(td_scratch_count(".tmp."), 0);
}

/* in a child with mounts of its own; 77: not allowed to mount, else the number of a failed check */
static int fill_a_disk(const char *folder)
{
    char file[4200];
    struct stat s;

    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return 77;
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", folder, "tmpfs", 0, "size=64k") != 0)
        return 77;
    snprintf(file, sizeof file, "%s/w", folder);
    if (td_atomic_save(file, big, sizeof big) != TD_OK)
        return 1;
    if (td_atomic_save(file, big, sizeof big - 1) != TD_EIO)
        return 2;
    if (!strstr(td_error_message(), "No space left"))
        return 3;
    if (stat(file, &s) != 0 || s.st_size != sizeof big)
        return 4;
    if (td_atomic_save(file, big, 5000) != TD_OK) /* fits only if the temporary is gone */
        return 5;
    return stat(file, &s) == 0 && s.st_size == 5000 ? 0 : 6;
}

static void full_disk(void **state)
{
    (void)state;
    char folder[4096];
    int status;

    snprintf(folder, sizeof folder, "%s", td_scratch_path("disk"));
    assert_true(mkdir(folder, 0777) == 0 || errno == EEXIST);
    pid_t pid = fork();
    if (pid == 0)
        _exit(fill_a_disk(folder));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    rmdir(folder);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("skipped: mounting a small disk is not permitted here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void save_forever(void)
{
    for (char c = 'a';; c = c == 'z' ? 'a' : (char)(c + 1)) {
        memset(big, c, sizeof big);
        if (td_atomic_save(path, big, sizeof big - (size_t)(c - 'a')) != TD_OK)
            _exit(1);
    }
}

static void killed_at_any_moment(void **state)
{
    (void)state;
    expect_ok(td_atomic_save(path, "", 0));
    for (int round = 0; round < 60; round++) {
        pid_t pid = fork();
        if (pid == 0)
            save_forever();
        usleep((useconds_t)(500 + round * 997 % 9000));
        assert_int_equal(kill(pid, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));

        char *bytes;
        size_t n;
        expect_ok(td_file_read(path, sizeof big, &bytes, &n));
        for (size_t i = 0; i < n; i++)
            assert_true(bytes[i] == bytes[0]);
        assert_true(n == 0 || n == sizeof big - (size_t)(bytes[0] - 'a'));
        td_free(bytes);
    }
    expect_ok(td_atomic_save(path, "end", 3));
    assert_int_equal(td_scratch_count(".tmp."), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(save_and_replace),       cmocka_unit_test(close_without_commit),
        cmocka_unit_test(path_without_folder),    cmocka_unit_test(permissions_and_links),
        cmocka_unit_test(refused_paths),          cmocka_unit_test(stale_temporaries),
        cmocka_unit_test(dead_pid_but_held),      cmocka_unit_test(two_writers),
        cmocka_unit_test(every_call_fails),       cmocka_unit_test(folder_that_cannot_be_flushed),
        cmocka_unit_test(writes_after_a_failure), cmocka_unit_test(allocation_failures),
        cmocka_unit_test(file_size_limit),        cmocka_unit_test(full_disk),
        cmocka_unit_test(killed_at_any_moment),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
