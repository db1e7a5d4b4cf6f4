#!/bin/sh
# run.sh NAME COMMAND... -- one test, in the environment that tests/CMakeLists.txt promises
#
# ctest sets TANDEM, TANDEM_SOURCE and TANDEM_BUILD.  TANDEM_SHARED (images to test with) and TANDEM_GOLDEN
# (case files) are the caller's, with defaults; relative paths count from the source folder.  What a test wrote stays
# where it failed, or where TANDEM_KEEP is set.
name=$1
shift

absolute() {
    case $1 in
    /*) echo "$1" ;;
    *) echo "$TANDEM_SOURCE/$1" ;;
    esac
}

TANDEM_SHARED=$(absolute "${TANDEM_SHARED:-../shared}")
TANDEM_GOLDEN=$(absolute "${TANDEM_GOLDEN:-tests/golden}")
WORK=$TANDEM_BUILD/work/$name
XDG_CACHE_HOME=$WORK/cache # nothing measured before is used
TANDEM_PROGRESS_SECONDS=0 # no line depends on the machine's speed
export TANDEM_SHARED TANDEM_GOLDEN WORK XDG_CACHE_HOME TANDEM_PROGRESS_SECONDS

rm -rf "$WORK"
mkdir -p "$WORK" || exit 1
case $name in
e2e.*) cd "$WORK" || exit 1 ;;
*) # as the command's own start chooses it (src/runtime/process.c): libgomp's default takes others' processor time
    GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-5000}
    export GOMP_SPINCOUNT
    ;;
esac
"$@"
code=$?
case $code in
0 | 77) [ -n "${TANDEM_KEEP:-}" ] || { cd "$TANDEM_BUILD" && rm -rf "$WORK"; } ;;
esac
exit $code
