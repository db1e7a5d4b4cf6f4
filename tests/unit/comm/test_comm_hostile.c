/* ctest: labels threads */
/*
 * test_comm_hostile.c -- sizes that a rank announces are checked, descriptors that are no sockets
 * of ranks are refused, and text from another rank cannot steer a terminal
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/status.h"
#include "base/text.h"
#include "comm/gather.h"
#include "support/ranks.h"
#include "transport/local_links.h"

/* in a rank's body: leave with the line where something is wrong */
#define WANT(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            return __LINE__ % 120 + 1;                                                             \
    } while (0)

static void two_ranks_end_well(int (*body)(const td_rank_place *place, void *ctx), void *ctx)
{
    int codes[2];
    td_test_ranks(2, body, ctx, codes);
    assert_int_equal(codes[0], 0);
    assert_int_equal(codes[1], 0);
}

/* --- sizes ------------------------------------------------------------------------------------ */

static td_status take_nothing(void *ctx, int rank, const void *bytes, size_t n)
{
    (void)ctx, (void)rank, (void)bytes, (void)n;
    return TD_OK;
}

typedef struct {
    int64_t size; /* what rank 1 announces */
    bool is_text; /* for an agreement, not a block */
} lie;

static int hear_a_liar(const td_rank_place *place, void *ctx)
{
    const lie *l = ctx;
    int64_t sizes[2];
    td_comm *c;
    WANT(td_comm_open(place, NULL, &c) == TD_OK);
    if (place->rank == 1) {
        (void)!td_comm_gather(c, &l->size, sizeof l->size, sizes); /* rank 0 may have left */
        td_comm_close(c, TD_OK);
        return 0;
    }
    td_status st = l->is_text ? td_comm_agree(c, "run", "text")
                              : td_comm_collect(c, "", 0, take_nothing, NULL);
    WANT(st == TD_EDEVICE && strstr(td_error_message(), "rank 1 ("));
    WANT(strstr(td_error_message(), "announced"));
    td_comm_close(c, st);
    return 0;
}

static void sizes_of_blocks_are_checked(void **state)
{
    (void)state;
    static const int64_t sizes[] = { -1, INT64_MIN, INT64_MAX, INT64_C(1) << 60 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        two_ranks_end_well(hear_a_liar, &(lie){ .size = sizes[i] });
}

/* rank 1 sends as many bytes as it announced, and none of them ends a text */
static int agree_without_an_end(const td_rank_place *place, void *ctx)
{
    enum { N = 64 };
    int64_t size = N, sizes[2];
    char own[N], all[2 * N];
    td_comm *c;
    (void)ctx;
    WANT(td_comm_open(place, NULL, &c) == TD_OK);
    if (place->rank == 1) {
        memset(own, '\x1b', sizeof own);
        (void)!td_comm_gather(c, &size, sizeof size, sizes); /* rank 0 may have left */
        (void)!td_comm_gather(c, own, N, all);
        td_comm_close(c, TD_OK);
        return 0;
    }
    td_status st = td_comm_agree(c, "run", "text");
    WANT(st == TD_EARG && strstr(td_error_message(), "rank 1 ("));
    WANT(!strchr(td_error_message(), '\x1b'));
    td_comm_close(c, st);
    return 0;
}

static void texts_are_checked(void **state)
{
    (void)state;
    static const int64_t sizes[] = { -1, 0, INT64_MAX, INT64_C(1) << 40 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        two_ranks_end_well(hear_a_liar, &(lie){ .size = sizes[i], .is_text = true });
    two_ranks_end_well(agree_without_an_end, NULL);
}

/* rank 1's images: of *ctx bytes each */
static int gather_from_a_liar(const td_rank_place *place, void *ctx)
{
    td_gather_sample images[2] = { { .sample = 0, .n_bytes = *(const int64_t *)ctx },
                                   { .sample = 1, .n_bytes = *(const int64_t *)ctx } };
    td_gather s = { 0 };
    td_comm *c;
    WANT(td_comm_open(place, NULL, &c) == TD_OK);
    if (place->rank == 1) {
        td_status st = td_comm_collect(c, images, sizeof images, take_nothing, NULL);
        WANT(st == TD_EDEVICE && strstr(td_error_message(), "announced"));
        td_comm_close(c, st);
        return 0;
    }
    td_status st = td_gather_run(&s, c);
    WANT(st == TD_EDEVICE && strstr(td_error_message(), "rank 1 announced an image"));
    td_comm_close(c, st);
    td_gather_release(&s);
    return 0;
}

static void sizes_of_images_are_checked(void **state)
{
    (void)state;
    static const int64_t sizes[] = { -8, INT64_MIN, INT64_MAX };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t size = sizes[i];
        two_ranks_end_well(gather_from_a_liar, &size);
    }
}

/* --- descriptors ------------------------------------------------------------------------------ */

static void only_sockets_of_ranks_are_taken(void **state)
{
    (void)state;
    int pair[2], dgram[2], fds[3];
    char good[64], text[64];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, dgram), 0);
    td_rank_place p = { .by = TD_RANKS_LAUNCH, .rank = 1, .size = 3, .fds = good };
    snprintf(good, sizeof good, "%d,-,%d", pair[0], pair[1]);
    assert_int_equal(td_local_links_take(&p, fds), TD_OK);
    assert_int_equal(fds[0], pair[0]);
    assert_int_equal(fds[1], -1);
    assert_int_equal(fds[2], pair[1]);
    const char *const bad[] = {
        "",       "-",         "%d",       "%d,-",   "%d,-,",    "%d,-,-",
        "-,%d,-", "%d,-,%d,9", "%d,%d,-",  "%d,-,x", "%d,-,-1",  "%d,-,0",
        "%d,-,2", "%d,-,9999", "%d-,-,%d", ",,",     "%d,-,0x5", "%d;-;%d"
    };
    p.fds = text;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        /* each %d is the next good descriptor */
        size_t n = 0;
        int k = 0;
        for (const char *c = bad[i]; *c; c++)
            if (*c == '%' && ++c)
                n += (size_t)snprintf(text + n, sizeof text - n, "%d", pair[k++ % 2]);
            else
                text[n++] = *c;
        text[n] = '\0';
        assert_int_equal(td_local_links_take(&p, fds), TD_EUSAGE);
        assert_non_null(strstr(td_error_message(), TD_ENV_RANK_FDS));
    }
    snprintf(text, sizeof text, "%d,-,%d", pair[0], dgram[0]); /* a socket of another kind */
    assert_int_equal(td_local_links_take(&p, fds), TD_EUSAGE);
    p.fds = NULL;
    assert_int_equal(td_local_links_take(&p, fds), TD_EUSAGE);
}

/* --- text ------------------------------------------------------------------------------------- */

static int fail_with_escapes(const td_rank_place *place, void *ctx)
{
    td_comm *c = NULL;
    int64_t n = 1;
    (void)ctx;
    td_status st = td_comm_open(place, NULL, &c);
    if (place->rank == 1) {
        td_comm_close(c, td_error(TD_EIO, "red \x1b[31m and a\nline of \xc2\x9b its own"));
        return 0;
    }
    if (st == TD_OK) /* rank 1 may be quicker than the end of this rank's opening */
        st = td_comm_sum_i64(c, &n, 1);
    WANT(st == TD_EDEVICE);
    WANT(strstr(td_error_message(), "red ?[31m and a?line of ?? its own"));
    td_comm_close(c, st);
    return 0;
}

static void text_from_ranks_cannot_steer_a_terminal(void **state)
{
    (void)state;
    two_ranks_end_well(fail_with_escapes, NULL);
    char text[] = "Gr\xc3\xbc\xc3\x9f\x65 \xe2\x82\xac", broken[] = "a\xff\x80z\x7f";
    td_text_make_printable(text);
    assert_string_equal(text, "Gr\xc3\xbc\xc3\x9f\x65 \xe2\x82\xac");
    td_text_make_printable(broken);
    assert_string_equal(broken, "a??z?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_of_blocks_are_checked),
        cmocka_unit_test(texts_are_checked),
        cmocka_unit_test(sizes_of_images_are_checked),
        cmocka_unit_test(only_sockets_of_ranks_are_taken),
        cmocka_unit_test(text_from_ranks_cannot_steer_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
