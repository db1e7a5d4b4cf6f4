/* test_signals.c -- the first signal is noted, the second ends the process */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/signals.h"
#include "support/leaks.h"

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
        leak_checked_test(the_first_signal_is_noted_the_second_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
