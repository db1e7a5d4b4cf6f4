/*
 * fuzz_main.c -- replays inputs of fuzz targets without a fuzzing compiler
 *
 *     fuzz_jpeg CORPUS [ROUNDS]
 *
 * Calls LLVMFuzzerTestOneInput with every file of the folder CORPUS, with prefixes of it, and with
 * ROUNDS (default 64) damaged copies: some bytes overwritten, in every fourth a run cut out.  The
 * damage comes from a fixed seed, so that a failure repeats; with FUZZ_VERBOSE set, each input is
 * described on stderr before the call.  Inputs live in blocks of their exact size, so that a
 * sanitizer sees a read past the end.  A crash is a failure, and so is a corpus with no file in it.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static uint64_t state = 0x9e3779b97f4a7c15u;

/* xorshift64: good enough to choose places */
static size_t below(size_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (size_t)(state % n);
}

static uint8_t *copy(const uint8_t *data, size_t n_bytes)
{
    uint8_t *p = malloc(n_bytes ? n_bytes : 1);
    if (!p)
        abort();
    if (n_bytes)
        memcpy(p, data, n_bytes);
    return p;
}

static void try_one(const uint8_t *data, size_t n_bytes, const char *name, const char *what,
                    int round)
{
    uint8_t *exact = copy(data, n_bytes);

    if (getenv("FUZZ_VERBOSE"))
        fprintf(stderr, "%s, %s %d, %zu bytes\n", name, what, round, n_bytes);
    LLVMFuzzerTestOneInput(exact, n_bytes);
    free(exact);
}

static void try_damaged(const uint8_t *data, size_t n_bytes, const char *name, int round)
{
    static const uint8_t edges[] = { 0x00, 0x01, 0x7f, 0x80, 0xfe, 0xff };
    uint8_t *bad = copy(data, n_bytes);
    size_t n_hits = 1 + below(8), from = below(n_bytes), n_cut = below(n_bytes - from);

    for (size_t i = 0; i < n_hits; i++) {
        /* headers are where the decisions are: half of the hits go into the first 64 bytes */
        size_t at = below(i % 2 && n_bytes > 64 ? 64 : n_bytes);
        if (below(2))
            bad[at] = edges[below(sizeof(edges))];
        else
            bad[at] = (uint8_t)(bad[at] ^ 1u << below(8));
    }
    if (round % 4 == 3) {
        memmove(bad + from, bad + from + n_cut, n_bytes - from - n_cut);
        n_bytes -= n_cut;
    }
    try_one(bad, n_bytes, name, "damaged", round);
    free(bad);
}

static bool replay(const char *path, int n_rounds)
{
    enum { max_bytes = 1 << 24 };
    uint8_t *data = malloc(max_bytes);
    FILE *f = fopen(path, "rb");
    size_t n_bytes = data && f ? fread(data, 1, max_bytes, f) : 0;
    bool is_read = data && f && !ferror(f);

    if (is_read) {
        try_one(data, n_bytes, path, "whole", 0);
        for (int i = 0; i < 16 && n_bytes; i++)
            try_one(data, i < 8 ? n_bytes * (size_t)i / 8 : below(n_bytes), path, "prefix", i);
        for (int i = 0; i < n_rounds && n_bytes; i++)
            try_damaged(data, n_bytes, path, i);
    } else {
        fprintf(stderr, "cannot read %s\n", path);
    }
    if (f)
        fclose(f);
    free(data);
    return is_read;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s CORPUS [ROUNDS]\n", argv[0]);
        return 2;
    }
    int n_rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 64;
    struct dirent **entries = NULL;
    int n = scandir(argv[1], &entries, NULL, alphasort), n_files = 0;
    bool is_good = true;

    for (int i = 0; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s", argv[1], entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            is_good = replay(path, n_rounds) && is_good;
            n_files++;
        }
        free(entries[i]);
    }
    free(entries);
    try_one((const uint8_t *)"", 0, "nothing", "empty", 0);
    printf("%s: %d files, %d damaged copies of each\n", argv[1], n_files, n_rounds);
    if (!n_files)
        fprintf(stderr, "%s: no corpus\n", argv[1]);
    return is_good && n_files ? 0 : 1;
}
