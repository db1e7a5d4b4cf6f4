/* test_os.c -- files that are none, folders, the machine's numbers, pages, signals */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file_io.h"
#include "base/machine.h"
#include "base/paths.h"
#include "base/signals.h"
#include "support/leaks.h"

static char scratch[] = "/tmp/td-test-os-XXXXXX";

static int enter_scratch(void **state)
{
    (void)state;
    return !mkdtemp(scratch) || chdir(scratch) != 0;
}

static int leave_scratch(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch);
    return chdir("/") != 0 || system(command) != 0;
}

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000L }, NULL);
}

/* --- time ------------------------------------------------------------------------------------ */

static void clocks_run(void **state)
{
    (void)state;
    int64_t start = td_now_ns(), since = td_since_start_ns();
    double wall = td_wall_s();
    pause_ms(30);
    assert_true(td_now_ns() - start >= 30 * 1000000);
    assert_true(td_wall_s() > wall);
    assert_true(td_wall_s() > 1.7e9);
    assert_true(td_since_start_ns() - since >= 10 * 1000000);
    assert_true(since >= 0 && since < start);
}

/* --- files ----------------------------------------------------------------------------------- */

static void check_read(const char *path, size_t max_bytes, td_status wanted, const char *message)
{
    char *out = scratch, *buf = NULL;
    size_t n = 99, cap = 0;
    assert_int_equal(td_file_read(path, max_bytes, &out, &n), wanted);
    assert_null(out);
    assert_int_equal(n, 0);
    assert_non_null(strstr(td_error_message(), message));
    assert_non_null(strstr(td_error_message(), path));
    assert_int_equal(td_file_read_into(path, max_bytes, &buf, &cap, &n), wanted);
    assert_int_equal(n, 0);
    td_free(buf);
}

static void files_come_back(void **state)
{
    (void)state;
    char bytes[10000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 7);
    char *out;
    size_t n;
    assert_int_equal(td_file_write("data", bytes, sizeof bytes), TD_OK);
    assert_int_equal(td_file_read("data", sizeof bytes, &out, &n), TD_OK);
    assert_int_equal(n, sizeof bytes);
    assert_memory_equal(out, bytes, n);
    assert_int_equal(out[n], 0);
    td_free(out);
    assert_int_equal(td_file_write("data", "ab", 2), TD_OK); /* shorter than before */
    assert_int_equal(td_file_read("data", SIZE_MAX, &out, &n), TD_OK);
    assert_string_equal(out, "ab");
    td_free(out);
    assert_int_equal(td_file_write("empty", "", 0), TD_OK);
    assert_int_equal(td_file_read("empty", 0, &out, &n), TD_OK);
    assert_int_equal(n, 0);
    assert_string_equal(out, "");
    td_free(out);
}

static void a_buffer_is_kept_and_grown(void **state)
{
    (void)state;
    char *buf = NULL;
    size_t cap = 0, n;
    assert_int_equal(td_file_write("long", "0123456789abcdefghij", 20), TD_OK);
    assert_int_equal(td_file_write("short", "xyz", 3), TD_OK);
    assert_int_equal(td_file_read_into("long", 100, &buf, &cap, &n), TD_OK);
    assert_string_equal(buf, "0123456789abcdefghij");
    char *kept = buf;
    assert_int_equal(td_file_read_into("short", 100, &buf, &cap, &n), TD_OK);
    assert_string_equal(buf, "xyz");
    assert_int_equal(n, 3);
    assert_ptr_equal(buf, kept);
    assert_int_equal(td_file_read_into("absent", 100, &buf, &cap, &n), TD_ENOTFOUND);
    assert_ptr_equal(buf, kept);
    td_free(buf);
}

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    assert_int_equal(mkfifo("fifo", 0600), 0);
    struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "socket" };
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (const struct sockaddr *)(const void *)&address, sizeof address), 0);
    check_read("absent", 10, TD_ENOTFOUND, "No such file");
    check_read("/dev/null/x", 10, TD_ENOTFOUND, "Not a directory");
    check_read("fifo", 10, TD_EIO, "is a pipe, wanted a file");
    check_read("/dev/zero", 10, TD_EIO, "is a device, wanted a file");
    check_read(".", 10, TD_EIO, "is a folder, wanted a file");
    check_read("socket", 10, TD_EIO, "cannot open");
    close(s);
    if (geteuid() != 0) { /* root reads everything */
        assert_int_equal(td_file_write("secret", "x", 1), TD_OK);
        assert_int_equal(chmod("secret", 0), 0);
        check_read("secret", 10, TD_EIO, "Permission denied");
    }
}

static void too_long_is_refused(void **state)
{
    (void)state;
    char *out;
    size_t n;
    assert_int_equal(td_file_write("eleven", "0123456789a", 11), TD_OK);
    check_read("eleven", 10, TD_ELIMIT, "has 11 bytes, at most 10 are read");
    assert_int_equal(td_file_read("eleven", 11, &out, &n), TD_OK);
    td_free(out);
    /* a file that says it is empty, and is not */
    assert_int_equal(td_file_read("/proc/self/status", 1 << 20, &out, &n), TD_OK);
    assert_in_range(n, 100, 1 << 20);
    assert_int_equal(strlen(out), n);
    td_free(out);
    check_read("/proc/self/status", 100, TD_ELIMIT, "more than 100 bytes");
    /* a hole of 1 TiB: refused before anything is allocated */
    assert_int_equal(truncate("eleven", INT64_C(1) << 40), 0);
    check_read("eleven", 1 << 20, TD_ELIMIT, "1099511627776 bytes");
}

static void writing_can_fail(void **state)
{
    (void)state;
    assert_int_equal(td_file_write("absent/x", "x", 1), TD_EIO);
    assert_non_null(strstr(td_error_message(), "'absent/x': No such file"));
    assert_int_equal(td_file_write(".", "x", 1), TD_EIO);
    assert_int_equal(td_file_write("/dev/full", "x", 1), TD_EIO);
    assert_non_null(strstr(td_error_message(), "No space left"));
}

static void reading_survives_failing_memory(void **state)
{
    (void)state;
    char *out = NULL, *buf = NULL;
    size_t n, cap = 0;
    assert_int_equal(td_file_write("x", "abc", 3), TD_OK);
    int64_t live = td_alloc_live();
    for (int k = 1; k <= 3; k++) {
        td_alloc_fail_at(k);
        td_status st = td_file_read("/proc/self/status", 1 << 20, &out, &n);
        td_alloc_fail_at(0);
        assert_int_equal(st, TD_ENOMEM);
        assert_null(out);
        assert_int_equal(td_alloc_live(), live);
    }
    td_alloc_fail_at(1);
    assert_int_equal(td_file_read_into("x", 10, &buf, &cap, &n), TD_ENOMEM);
    assert_null(buf);
}

/* --- folders --------------------------------------------------------------------------------- */

static void folders_are_made_with_parents(void **state)
{
    (void)state;
    assert_int_equal(td_make_folder("a/b//c/"), TD_OK);
    assert_true(td_path_is_folder("a/b/c"));
    assert_int_equal(td_make_folder("a/b/c"), TD_OK);
    char absolute[100];
    snprintf(absolute, sizeof absolute, "%s/d/e", scratch);
    assert_int_equal(td_make_folder(absolute), TD_OK);
    assert_true(td_path_is_folder("d/e"));
    assert_int_equal(td_make_folder("/"), TD_OK);
    assert_int_equal(td_make_folder(""), TD_EARG);
    assert_int_equal(td_file_write("plain", "", 0), TD_OK);
    assert_int_equal(td_make_folder("plain"), TD_EIO);
    assert_non_null(strstr(td_error_message(), "'plain' is a file, wanted a folder"));
    assert_int_equal(td_make_folder("plain/below"), TD_EIO);
    if (td_path_is_folder("/sys/kernel")) { /* nobody can, and not because it is not there */
        assert_int_equal(td_make_folder("/sys/tandem"), TD_EIO);
        assert_null(strstr(td_error_message(), "No such file"));
    }
    td_alloc_fail_at(1);
    assert_int_equal(td_make_folder("never"), TD_ENOMEM);
    td_alloc_fail_at(0);
    assert_false(td_path_exists("never"));
    assert_true(td_path_exists("plain"));
    assert_false(td_path_is_folder("plain"));
}

static void check_join(const char *a, const char *b, const char *wanted)
{
    char *path = td_path_join(a, b);
    assert_string_equal(path, wanted);
    td_free(path);
}

static void paths_are_joined(void **state)
{
    (void)state;
    check_join("a", "b", "a/b");
    check_join("a/", "b", "a/b");
    check_join("/", "b", "/b");
    check_join("", "b", "b");
    check_join("a", "/b", "/b");
    check_join("a", "", "a/");
    td_alloc_fail_at(1);
    assert_null(td_path_join("a", "b"));
    assert_string_equal(td_path_base("a/b.jpg"), "b.jpg");
    assert_string_equal(td_path_base("b.jpg"), "b.jpg");
    assert_string_equal(td_path_base("a/"), "");
}

static void a_folder_is_listed_in_order(void **state)
{
    (void)state;
    td_listing l;
    assert_int_equal(td_make_folder("list/zebra"), TD_OK);
    assert_int_equal(td_make_folder("list/.hidden"), TD_OK);
    assert_int_equal(td_file_write("list/b\xff.jpg", "", 0), TD_OK);
    assert_int_equal(td_file_write("list/B.jpg", "", 0), TD_OK);
    assert_int_equal(symlink("zebra", "list/link"), 0);
    assert_int_equal(symlink("nowhere", "list/broken"), 0);
    assert_int_equal(td_list_folder("list", &l), TD_OK);
    static const char *const names[] = {
        ".hidden", "B.jpg", "broken", "b\xff.jpg", "link", "zebra"
    };
    static const bool folders[] = { true, false, false, false, true, true };
    assert_int_equal(l.n, 6);
    for (size_t i = 0; i < l.n; i++)
        assert_string_equal(l.names[i], names[i]);
    for (size_t i = 0; i < l.n; i++)
        assert_int_equal(l.is_folder[i], folders[i]);
    td_listing_release(&l);
    td_listing_release(&l);
    assert_int_equal(td_list_folder("list/zebra", &l), TD_OK);
    assert_int_equal(l.n, 0);
    td_listing_release(&l);
}

static void listing_can_fail(void **state)
{
    (void)state;
    td_listing l = { .n = 9 };
    assert_int_equal(td_list_folder("absent", &l), TD_ENOTFOUND);
    assert_int_equal(l.n, 0);
    assert_int_equal(td_file_write("file", "", 0), TD_OK);
    assert_int_equal(td_list_folder("file", &l), TD_EIO);
    assert_string_equal(td_error_message(), "'file' is no folder");
    int64_t live = td_alloc_live();
    td_status st = TD_ENOMEM;
    assert_int_equal(td_make_folder("some"), TD_OK);
    assert_int_equal(td_file_write("some/x", "", 0), TD_OK);
    for (int k = 1; st != TD_OK; k++) {
        td_alloc_fail_at(k);
        st = td_list_folder("some", &l);
        td_alloc_fail_at(0);
        assert_true(k > 3 || st == TD_ENOMEM);
        if (st != TD_OK)
            assert_int_equal(td_alloc_live(), live);
    }
    assert_int_equal(l.n, 1);
    td_listing_release(&l);
}

/* --- the machine ----------------------------------------------------------------------------- */

static void processors_are_those_allowed(void **state)
{
    (void)state;
    cpu_set_t all, one;
    int n = td_cpu_count();
    assert_in_range(n, 1, sysconf(_SC_NPROCESSORS_CONF));
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_true(n <= CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(td_cpu_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(td_cpu_count(), n);
}

/* In a name space of its own, where that is allowed: a group without limits in one with. */
static int count_in_a_group(void)
{
    static const char groups[] = "0::/outer/inner\n";
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        td_file_write("groups", groups, sizeof groups - 1) != TD_OK ||
        mount("groups", "/proc/self/cgroup", NULL, MS_BIND, NULL) != 0 ||
        mount("none", "/sys/fs/cgroup", "tmpfs", 0, NULL) != 0)
        return 77;
    if (td_make_folder("/sys/fs/cgroup/outer/inner") != TD_OK ||
        td_file_write("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n", 11) != TD_OK ||
        td_file_write("/sys/fs/cgroup/outer/inner/memory.max", "max\n", 4) != TD_OK)
        return 90;
    int free_count = td_cpu_count();
    int64_t free_bytes = td_memory_total_bytes();
    if (free_count < 1 || free_bytes <= 64 << 20)
        return 91;
    if (td_file_write("/sys/fs/cgroup/outer/cpu.max", "50000 100000\n", 13) != TD_OK ||
        td_file_write("/sys/fs/cgroup/outer/memory.max", "67108864\n", 9) != TD_OK)
        return 92;
    if (td_cpu_count() != 1 || td_memory_total_bytes() != 64 << 20)
        return 93;
    if (td_file_write("/sys/fs/cgroup/outer/cpu.max", "150000 100000\n", 14) != TD_OK)
        return 94;
    return td_cpu_count() == (free_count < 2 ? free_count : 2) ? 0 : 95;
}

static void control_groups_are_honoured(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(count_in_a_group());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void the_processor_has_a_name(void **state)
{
    (void)state;
    static const char *const isas[] = { "avx512_bf16", "avx512", "avx2", "generic" };
    int known = 0;
    for (int i = 0; i < 4; i++)
        known += strcmp(td_cpu_isa(), isas[i]) == 0;
    assert_int_equal(known, 1);
    assert_true(strlen(td_cpu_name()) > 0);
    assert_null(strchr(td_cpu_name(), '\n'));
}

static void memory_is_measured(void **state)
{
    (void)state;
    size_t bytes = (size_t)64 << 20;
    int64_t now = td_memory_now_bytes(), peak = td_memory_peak_bytes();
    assert_true(now > 0 && peak > 0);
    assert_true(td_memory_total_bytes() > 64 << 20);
    char *p = td_pages_alloc(bytes);
    assert_non_null(p);
    memset(p, 1, bytes);
    assert_true(td_memory_now_bytes() > now + (int64_t)bytes / 2);
    assert_true(td_memory_peak_bytes() >= now + (int64_t)bytes / 2);
    td_pages_free(p, bytes);
    assert_true(td_memory_now_bytes() < now + (int64_t)bytes / 2);
    assert_true(td_memory_peak_bytes() >= now + (int64_t)bytes / 2);
}

static void pages_are_zero_and_aligned(void **state)
{
    (void)state;
    static const size_t sizes[] = {
        0, 1, 4096, 4097, 1 << 20, (2 << 20) - 1, 2 << 20, (5 << 20) + 3
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int64_t live = td_alloc_live();
        unsigned char *p = td_pages_alloc(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 4096, 0);
        for (size_t k = 0; k < sizes[i]; k++)
            if (p[k] != 0)
                fail();
        if (sizes[i] > 0)
            memset(p, 0xff, sizes[i]);
        assert_int_equal(td_alloc_live(), live + 1);
        td_pages_free(p, sizes[i]);
        assert_int_equal(td_alloc_live(), live);
    }
    td_pages_free(NULL, 10);
}

static void pages_can_fail(void **state)
{
    (void)state;
    int64_t calls = td_alloc_count();
    assert_null(td_pages_alloc(SIZE_MAX));
    assert_null(td_pages_alloc(SIZE_MAX - 4096));
    assert_null(td_pages_alloc(SIZE_MAX / 2));
    assert_int_equal(td_alloc_count(), calls + 3);
    td_alloc_fail_at(1);
    assert_null(td_pages_alloc(4096));
    assert_string_equal(td_error_message(), "cannot allocate 4096 bytes of pages");
}

/* --- signals --------------------------------------------------------------------------------- */

static int run_child(int n_signals, int sig)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        td_signals_catch();
        raise(SIGPIPE);
        if (td_signal_caught() != 0)
            _exit(90);
        for (int i = 0; i < n_signals; i++)
            raise(sig);
        _exit(td_signal_caught() == sig ? 7 : 91);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void the_first_signal_is_noted_the_second_ends(void **state)
{
    (void)state;
    assert_int_equal(run_child(1, SIGINT), 7);
    assert_int_equal(run_child(1, SIGTERM), 7);
    assert_int_equal(run_child(2, SIGINT), 128 + SIGINT);
    assert_int_equal(run_child(2, SIGTERM), 128 + SIGTERM);
    assert_int_equal(run_child(1, SIGUSR1), 7); /* a batch system's warning */
    assert_int_equal(run_child(2, SIGUSR1), 128 + SIGUSR1);
    assert_int_equal(td_signal_caught(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(clocks_run),
        leak_checked_test(files_come_back),
        leak_checked_test(a_buffer_is_kept_and_grown),
        leak_checked_test(what_is_no_file_is_refused),
        leak_checked_test(too_long_is_refused),
        leak_checked_test(writing_can_fail),
        leak_checked_test(reading_survives_failing_memory),
        leak_checked_test(folders_are_made_with_parents),
        leak_checked_test(paths_are_joined),
        leak_checked_test(a_folder_is_listed_in_order),
        leak_checked_test(listing_can_fail),
        leak_checked_test(processors_are_those_allowed),
        leak_checked_test(control_groups_are_honoured),
        leak_checked_test(the_processor_has_a_name),
        leak_checked_test(memory_is_measured),
        leak_checked_test(pages_are_zero_and_aligned),
        leak_checked_test(pages_can_fail),
        leak_checked_test(the_first_signal_is_noted_the_second_ends),
    };
    return cmocka_run_group_tests(tests, enter_scratch, leave_scratch);
}
