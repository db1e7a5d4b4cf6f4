/* test_machine.c -- processors, control groups, memory and pages */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file_io.h"
#include "base/machine.h"
#include "base/paths.h"
#include "support/leaks.h"
#include "support/scratch.h"

static int enter_scratch(void **state)
{
    (void)state;
    return chdir(td_scratch_folder()) != 0;
}

static void this_process_has_an_age(void **state)
{
    (void)state;
    int64_t since = td_since_start_ns();
    nanosleep(&(struct timespec){ .tv_nsec = 30 * 1000000L }, NULL);
    assert_true(td_since_start_ns() - since >= 10 * 1000000);
    assert_true(since >= 0 && since < td_now_ns());
}

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
    if (free_count < 1 || free_bytes <= 64 << 20 || td_core_share(1, 9) != td_core_count() ||
        td_core_share(1 << 20, 1 << 20) != 1)
        return 91;
    if (td_file_write("/sys/fs/cgroup/outer/cpu.max", "50000 100000\n", 13) != TD_OK ||
        td_file_write("/sys/fs/cgroup/outer/memory.max", "67108864\n", 9) != TD_OK)
        return 92;
    if (td_cpu_count() != 1 || td_memory_total_bytes() != 64 << 20 ||
        td_memory_available_bytes() > 64 << 20)
        return 93;
    if (td_file_write("/sys/fs/cgroup/outer/cpu.max", "150000 100000\n", 14) != TD_OK)
        return 94;
    const int count = free_count < 2 ? free_count : 2;
    if (td_cpu_count() != count)
        return 95;
    /* two ranks with processors of their own have one of the quota's two each */
    const int cores = td_core_count();
    if (cores > count)
        return 97;
    return td_core_share(1, 1) == cores && td_core_share(1, 2) == 1 && td_core_share(1, 9) == 1
               ? 0
               : 96;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(this_process_has_an_age),
        leak_checked_test(processors_are_those_allowed),
        leak_checked_test(control_groups_are_honoured),
        leak_checked_test(the_processor_has_a_name),
        leak_checked_test(memory_is_measured),
        leak_checked_test(pages_are_zero_and_aligned),
        leak_checked_test(pages_can_fail),
    };
    return cmocka_run_group_tests(tests, enter_scratch, NULL);
}
