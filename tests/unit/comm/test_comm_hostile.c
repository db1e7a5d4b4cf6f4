/* ctest: labels threads */
/*
 * test_comm_hostile.c -- what a rank announces is checked, strangers at the port hold nobody up,
 * text from another rank cannot steer a terminal, and no port is open to everybody
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/status.h"
#include "base/text.h"
#include "comm/gather.h"
#include "support/ranks.h"

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

/* --- strangers -------------------------------------------------------------------------------- */

enum { STRANGERS = 100 }; /* 5 s for each in turn would be over the time that is waited */

static int join_among_strangers(const td_rank_place *place, void *ctx)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)place->port) };
    int fds[STRANGERS];
    td_comm *c;
    int64_t n = 1;
    (void)ctx;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; place->rank == 1 && i < STRANGERS; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        WANT(fds[i] >= 0 && connect(fds[i], (struct sockaddr *)&at, sizeof at) == 0);
        WANT(i % 2 == 0 || write(fds[i], "GET / HTTP/1.1\r\n", 16) == 16);
    }
    WANT(td_comm_open(place, &(td_transport_opts){ .wait_s = 60 }, &c) == TD_OK);
    WANT(td_comm_sum_i64(c, &n, 1) == TD_OK && n == 2);
    td_comm_close(c, TD_OK);
    for (int i = 0; place->rank == 1 && i < STRANGERS; i++)
        close(fds[i]);
    return 0;
}

static void strangers_hold_nobody_up(void **state)
{
    (void)state;
    two_ranks_end_well(join_among_strangers, NULL);
}

static int join_with_another_token(const td_rank_place *place, void *ctx)
{
    td_rank_place own = *place;
    td_comm *c;
    (void)ctx;
    if (place->rank == 1)
        snprintf(own.token, sizeof own.token, "tesT");
    WANT(td_comm_open(&own, &(td_transport_opts){ .wait_s = 2 }, &c) == TD_EDEVICE);
    return 0;
}

static void another_token_is_turned_away(void **state)
{
    (void)state;
    two_ranks_end_well(join_with_another_token, NULL);
}

static void nothing_listens_beyond_this_machine_without_a_token(void **state)
{
    (void)state;
    td_rank_place place = { .by = TD_RANKS_LAUNCH, .size = 2, .port = 20001, .listen_fd = -1 };
    td_comm *c;
    snprintf(place.addr, sizeof place.addr, "0.0.0.0");
    for (place.rank = 0; place.rank < 2; place.rank++) {
        assert_int_equal(td_comm_open(&place, &(td_transport_opts){ .wait_s = 1 }, &c), TD_EUSAGE);
        assert_non_null(strstr(td_error_message(), TD_ENV_TOKEN));
    }
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
        cmocka_unit_test(strangers_hold_nobody_up),
        cmocka_unit_test(another_token_is_turned_away),
        cmocka_unit_test(nothing_listens_beyond_this_machine_without_a_token),
        cmocka_unit_test(text_from_ranks_cannot_steer_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
