/*
 * test_mapping.c -- mapped files, and files that shrink under the mapping
 */
#include "io/mapping.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/allocations.h"
#include "support/expect.h"
#include "support/scratch.h"

#define PAGES 8

static const char *file_of(const char *name, size_t n)
{
    const char *path = td_scratch_path(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++)
        putc('x', f);
    assert_int_equal(fclose(f), 0);
    return path;
}

static size_t page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static void a_mapping_is_the_file(void **state)
{
    (void)state;
    td_mapping *m;
    const size_t n = PAGES * page() + 5;
    expect_ok(td_mapping_open(file_of("whole", n), &m));
    assert_int_equal(td_mapping_size(m), n);
    td_mapping_will_be_read(m);
    const char *p = td_mapping_bytes(m);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(p[i], 'x');
    expect_ok(td_mapping_check(m));
    td_mapping_close(m);
    td_mapping_close(NULL);
}

static void an_empty_file_is_nothing(void **state)
{
    (void)state;
    td_mapping *m;
    expect_ok(td_mapping_open(file_of("empty", 0), &m));
    assert_int_equal(td_mapping_size(m), 0);
    assert_null(td_mapping_bytes(m));
    expect_ok(td_mapping_check(m));
    td_mapping_close(m);
}

static void a_file_that_shrinks_reads_as_zeros_and_is_told(void **state)
{
    (void)state;
    td_mapping *m, *other;
    const size_t n = PAGES * page();
    expect_ok(td_mapping_open(file_of("other", n), &other));
    expect_ok(td_mapping_open(file_of("shrinks", n), &m));
    const volatile char *p = td_mapping_bytes(m);
    assert_int_equal(p[0], 'x');
    assert_int_equal(truncate(td_scratch_path("shrinks"), (off_t)page()), 0);
    assert_int_equal(p[n - 1], 0);
    assert_int_equal(p[page()], 0);
    assert_int_equal(p[0], 'x');
    expect_error(td_mapping_check(m), TD_EIO, "the file was truncated, or its disk has");
    expect_ok(td_mapping_check(other));
    td_mapping_close(m);
    td_mapping_close(other);

    /* its place in the table is as good as new */
    expect_ok(td_mapping_open(file_of("again", n), &m));
    expect_ok(td_mapping_check(m));
    td_mapping_close(m);
}

/* elsewhere a bus error is what it was: the process ends by it */
static void other_bus_errors_still_end_the_process(void **state)
{
    (void)state;
    td_mapping *m;
    int status;
    signal(SIGBUS, SIG_DFL); /* not cmocka's, which jumps */
    expect_ok(td_mapping_open(file_of("guarded", page()), &m));
    const int fd = open(file_of("bare", 2 * page()), O_RDWR | O_CLOEXEC);
    const char *bare = mmap(NULL, 2 * page(), PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(bare != MAP_FAILED);
    assert_int_equal(ftruncate(fd, 1), 0);
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit none = { 0, 0 };
        setrlimit(RLIMIT_CORE, &none);
        close(STDERR_FILENO); /* a sanitizer's report */
        _exit(((const volatile char *)bare)[page()]);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
    munmap((void *)bare, 2 * page());
    close(fd);
    td_mapping_close(m);
}

static void bad_files_are_refused(void **state)
{
    (void)state;
    td_mapping *m;
    expect_error(td_mapping_open(td_scratch_path("absent"), &m), TD_ENOTFOUND, "absent");
    expect_error(td_mapping_open(td_scratch_folder(), &m), TD_EIO, "a folder");
    expect_error(td_mapping_open("/dev/zero", &m), TD_EIO, "not a regular file");
    assert_null(m);
}

static void too_many_are_refused(void **state)
{
    (void)state;
    td_mapping *m[TD_MAPPINGS_MAX], *one_more;
    const char *path = file_of("many", 10);
    for (int i = 0; i < TD_MAPPINGS_MAX; i++)
        expect_ok(td_mapping_open(path, &m[i]));
    expect_error(td_mapping_open(path, &one_more), TD_ELIMIT, "64 files are already mapped");
    for (int i = 0; i < TD_MAPPINGS_MAX; i++)
        td_mapping_close(m[i]);
    expect_ok(td_mapping_open(path, &one_more));
    td_mapping_close(one_more);
}

static td_status open_and_close(void)
{
    td_mapping *m;
    TD_TRY(td_mapping_open(td_scratch_path("whole"), &m));
    td_mapping_close(m);
    return TD_OK;
}

static void failing_allocations_leave_nothing_behind(void **state)
{
    (void)state;
    file_of("whole", 10);
    td_test_allocations(open_and_close, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mapping_is_the_file),
        cmocka_unit_test(an_empty_file_is_nothing),
        cmocka_unit_test(a_file_that_shrinks_reads_as_zeros_and_is_told),
        cmocka_unit_test(other_bus_errors_still_end_the_process),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(too_many_are_refused),
        cmocka_unit_test(failing_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
