/* test_hosts.c -- lists and files of machines: names, ranks on each, what is refused */
#include "support/expect.h"

#include "base/arena.h"
#include "launch/hosts.h"

static void check_hosts(const char *text, bool is_file, int n, const char *const *names, int slots)
{
    td_hosts h;
    assert_int_equal(td_hosts_parse(text, is_file, "list", &h), TD_OK);
    assert_int_equal(h.n, n);
    for (int i = 0; i < n; i++) {
        assert_string_equal(h.at[i].name, names[i]);
        assert_int_equal(h.at[i].slots, slots);
    }
    td_free(h.at);
}

#define NAMES(...) ((const char *const[]){ __VA_ARGS__ })

static void machines_are_listed(void **state)
{
    (void)state;
    td_hosts h;
    check_hosts("a", false, 1, NAMES("a"), 0);
    check_hosts("a,me@b.c,10.0.0.1", false, 3, NAMES("a", "me@b.c", "10.0.0.1"), 0);
    check_hosts("a:2,b:2", false, 2, NAMES("a", "b"), 2);
    check_hosts("fe80::1,::1", false, 2, NAMES("fe80::1", "::1"), 0); /* no count */
    check_hosts("# all\n a slots=4 # first\n\n\tb:4\r\nc   slots=4", true, 3, NAMES("a", "b", "c"),
                4);
    expect_error(td_hosts_parse("", false, "list", &h), TD_EUSAGE, "list names no machine");
    expect_error(td_hosts_parse("# a\n\n", true, "list", &h), TD_EUSAGE, "list names no machine");
    expect_error(td_hosts_parse("a,,b", false, "list", &h), TD_EUSAGE, "list: '' is not a");
    expect_error(td_hosts_parse("-oProxyCommand=x", false, "list", &h), TD_EUSAGE,
                 "'-oProxyCommand=x'");
    expect_error(td_hosts_parse("a:0", false, "list", &h), TD_EUSAGE, "'a' has '0'");
    expect_error(td_hosts_parse("a:", false, "list", &h), TD_EUSAGE, "'a' has ''");
    expect_error(td_hosts_parse("a:99999999999999999999", false, "list", &h), TD_EUSAGE,
                 "wanted 1 .. 1024");
    expect_error(td_hosts_parse("a slots=", true, "list", &h), TD_EUSAGE, "'slots=' after");
    expect_error(td_hosts_parse("a 4", true, "list", &h), TD_EUSAGE, "'4' after machine 'a'");
    expect_error(td_hosts_parse("a slots=1 slots=2", true, "list", &h), TD_EUSAGE, "after machine");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machines_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
