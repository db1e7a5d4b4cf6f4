/*
 * test_lock.c -- one holder at a time, named to the second comer, and gone with its process
 */
#include "io/lock.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/allocations.h"
#include "support/expect.h"
#include "support/scratch.h"

static void one_holder(void **state)
{
    (void)state;
    td_lock *a, *b;
    expect_ok(td_lock_open(td_scratch_folder(), &a));
    char pid[64];
    snprintf(pid, sizeof pid, "in use by process %ld on '", (long)getpid());
    expect_error(td_lock_open(td_scratch_folder(), &b), TD_EIO, pid);
    assert_null(b);
    assert_non_null(strstr(td_error_message(), td_scratch_folder()));
    td_lock_close(a);
    expect_ok(td_lock_open(td_scratch_folder(), &b));
    assert_int_equal(access(td_scratch_path(TD_LOCK_NAME), F_OK), 0);
    td_lock_close(b);
    td_lock_close(NULL);
    assert_int_equal(access(td_scratch_path(TD_LOCK_NAME), F_OK), -1);
}

/* Takes and leaves the lock `rounds` times; the exit code is 1 when another process had it, too. */
static void take_and_leave(int rounds)
{
    for (int i = 0; i < rounds;) {
        td_lock *l;
        if (td_lock_open(td_scratch_folder(), &l) != TD_OK)
            continue;
        const int inside = open(td_scratch_path("inside"), O_CREAT | O_EXCL | O_WRONLY, 0666);
        if (inside < 0 || close(inside) != 0 || unlink(td_scratch_path("inside")) != 0)
            _exit(1);
        td_lock_close(l);
        i++;
    }
    _exit(0);
}

static void never_two_holders(void **state)
{
    enum { PROCESSES = 4, ROUNDS = 300 };
    pid_t pid[PROCESSES];
    int status;
    (void)state;
    for (int i = 0; i < PROCESSES; i++) {
        pid[i] = fork();
        assert_true(pid[i] >= 0);
        if (pid[i] == 0)
            take_and_leave(ROUNDS);
    }
    for (int i = 0; i < PROCESSES; i++) {
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(td_scratch_count("inside"), 0);
    assert_int_equal(access(td_scratch_path(TD_LOCK_NAME), F_OK), -1);
}

/* a file that somebody else has put in place of the lock's is not removed */
static void the_file_of_others_stays(void **state)
{
    td_lock *a, *b;
    (void)state;
    expect_ok(td_lock_open(td_scratch_folder(), &a));
    assert_int_equal(unlink(td_scratch_path(TD_LOCK_NAME)), 0);
    expect_ok(td_lock_open(td_scratch_folder(), &b));
    td_lock_close(a);
    assert_int_equal(access(td_scratch_path(TD_LOCK_NAME), F_OK), 0);
    expect_error(td_lock_open(td_scratch_folder(), &a), TD_EIO, "in use by process");
    td_lock_close(b);
    assert_int_equal(access(td_scratch_path(TD_LOCK_NAME), F_OK), -1);
}

/* a child that holds the lock until it is killed; returns once it has it */
static pid_t start_holder(void)
{
    int fd[2];
    char c = 0;
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        td_lock *l;
        if (td_lock_open(td_scratch_folder(), &l) != TD_OK || write(fd[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(fd[1]);
    assert_int_equal(read(fd[0], &c, 1), 1);
    close(fd[0]);
    return pid;
}

static void ends_with_the_process(void **state)
{
    (void)state;
    td_lock *l;
    char part[64];
    pid_t pid = start_holder();
    snprintf(part, sizeof part, "in use by process %ld on '", (long)pid);
    expect_error(td_lock_open(td_scratch_folder(), &l), TD_EIO, part);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    expect_ok(td_lock_open(td_scratch_folder(), &l));
    td_lock_close(l);
}

static void unknown_holder(void **state)
{
    (void)state;
    td_lock *a, *b;
    static const char *const notes[] = { "", "4711", "4711 ", "\n\n" };
    expect_ok(td_lock_open(td_scratch_folder(), &a));
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        FILE *f = fopen(td_scratch_path(TD_LOCK_NAME), "w");
        assert_non_null(f);
        fputs(notes[i], f);
        fclose(f);
        expect_error(td_lock_open(td_scratch_folder(), &b), TD_EIO, "in use by another process");
    }
    td_lock_close(a);
}

static void bad_folders(void **state)
{
    (void)state;
    td_lock *l;
    expect_error(td_lock_open(td_scratch_path("absent"), &l), TD_EIO, "No such file");
    assert_null(l);
    FILE *f = fopen(td_scratch_path("precious"), "w");
    assert_non_null(f);
    fputs("text", f);
    fclose(f);
    expect_error(td_lock_open(td_scratch_path("precious"), &l), TD_EIO, "Not a directory");

    /* a link must not make us truncate what it points to */
    assert_int_equal(mkdir(td_scratch_path("linked"), 0777), 0);
    assert_int_equal(symlink("../precious", td_scratch_path("linked/" TD_LOCK_NAME)), 0);
    expect_error(td_lock_open(td_scratch_path("linked"), &l), TD_EIO, "cannot lock folder");
    struct stat s;
    assert_int_equal(stat(td_scratch_path("precious"), &s), 0);
    assert_int_equal(s.st_size, 4);
}

static td_status lock_folder(void)
{
    td_lock *l;
    const td_status st = td_lock_open(td_scratch_folder(), &l);
    assert_int_equal(l != NULL, st == TD_OK);
    td_lock_close(l);
    return st;
}

static void allocation_failures(void **state)
{
    (void)state;
    td_test_allocations(lock_folder, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_holder),
        cmocka_unit_test(ends_with_the_process),
        cmocka_unit_test(unknown_holder),
        cmocka_unit_test(bad_folders),
        cmocka_unit_test(allocation_failures),
        cmocka_unit_test(never_two_holders),
        cmocka_unit_test(the_file_of_others_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
