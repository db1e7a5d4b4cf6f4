/*
 * main.c -- the command `tandem`: the table of verbs and their dispatch
 */
#include <stdlib.h>
#include <string.h>

#include "cli/verb.h"
#include "tandem/program.h"

#define VERBS(VERB)                                                                                \
    VERB(train)                                                                                    \
    VERB(evaluate)                                                                                 \
    VERB(classify)                                                                                 \
    VERB(detect)                                                                                   \
    VERB(serve)                                                                                    \
    VERB(init)                                                                                     \
    VERB(convert)                                                                                  \
    VERB(quantize)                                                                                 \
    VERB(benchmark)                                                                                \
    VERB(launch)                                                                                   \
    VERB(inspect)                                                                                  \
    VERB(report)                                                                                   \
    VERB(dataset)                                                                                  \
    VERB(doctor)                                                                                   \
    VERB(help)                                                                                     \
    VERB(version)

#define DECLARE(name) extern const td_verb td_verb_##name;
VERBS(DECLARE)
#define ADDRESS(name) &td_verb_##name,
static const td_verb *const verbs[] = { VERBS(ADDRESS) NULL };

const td_verb *td_verb_at(int i)
{
    return verbs[i];
}

/* The verb; options such as --help in its place name a verb too. */
static const char *verb_name(int argc, char **argv)
{
    static const char *const spellings[][2] = {
        { "--help", "help" }, { "-h", "help" }, { "--version", "version" }, { "-V", "version" }
    };
    if (argc < 2)
        return "help";
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        if (strcmp(argv[1], spellings[i][0]) == 0)
            return spellings[i][1];
    return argv[1];
}

int main(int argc, char **argv)
{
    const td_verb *verb;
    td_process_setup(argv);
    td_status st = td_verb_find(verb_name(argc, argv), &verb);
    if (st != TD_OK)
        return td_verb_failed(NULL, st);
    int n_taken = argc < 2 ? 1 : 2;
    return td_verb_main(verb, argc - n_taken, argv + n_taken);
}
