/*
 * scratch.c -- a folder for the files of one test
 */
#include "support/scratch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *td_scratch_folder(void)
{
    static char made[] = "/tmp/tandem-test-XXXXXX";
    static const char *folder;

    if (!folder)
        folder = getenv("WORK");
    if (!folder)
        folder = mkdtemp(made);
    if (!folder) {
        perror("scratch folder");
        abort();
    }
    return folder;
}

const char *td_scratch_path(const char *name)
{
    static char paths[8][4096];
    static unsigned next;

    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", td_scratch_folder(), name);
    return path;
}

int td_scratch_count(const char *part)
{
    int n = 0;
    DIR *dir = opendir(td_scratch_folder());

    if (!dir)
        return -1;
    for (struct dirent *e; (e = readdir(dir));)
        n += e->d_name[0] != '.' && strstr(e->d_name, part);
    closedir(dir);
    return n;
}
