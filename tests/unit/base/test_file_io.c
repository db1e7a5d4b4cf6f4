/* test_file_io.c -- files read and written whole, and what is none */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "support/allocations.h"
#include "support/leaks.h"
#include "support/scratch.h"

static int enter_scratch(void **state)
{
    (void)state;
    return chdir(td_scratch_folder()) != 0;
}

static void check_read(const char *path, size_t max_bytes, td_status wanted, const char *message)
{
    char unset, *out = &unset, *buf = NULL;
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

/* of unknown size, so that the buffer is grown */
static td_status read_status(void)
{
    char *out = NULL;
    size_t n;
    const td_status st = td_file_read("/proc/self/status", 1 << 20, &out, &n);
    assert_int_equal(st == TD_OK, out != NULL);
    td_free(out);
    return st;
}

static td_status read_into(void)
{
    char *buf = NULL;
    size_t n, cap = 0;
    const td_status st = td_file_read_into("x", 10, &buf, &cap, &n);
    assert_int_equal(st == TD_OK, buf != NULL);
    td_free(buf);
    return st;
}

static void reading_survives_failing_memory(void **state)
{
    (void)state;
    assert_int_equal(td_file_write("x", "abc", 3), TD_OK);
    assert_true(td_test_allocations(read_status, 20) > 3);
    assert_int_equal(td_test_allocations(read_into, 2), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(files_come_back),
        leak_checked_test(a_buffer_is_kept_and_grown),
        leak_checked_test(what_is_no_file_is_refused),
        leak_checked_test(too_long_is_refused),
        leak_checked_test(writing_can_fail),
        leak_checked_test(reading_survives_failing_memory),
    };
    return cmocka_run_group_tests(tests, enter_scratch, NULL);
}
