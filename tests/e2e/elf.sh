# elf.sh -- no built file loads libraries from the current folder; all are linked and compiled defensively
set -u
. "$TANDEM_SOURCE/tests/e2e/lib_elf.sh"
failed=0

complain() {
    echo "elf: $*" >&2
    failed=1
}

if grep -q '^TANDEM_SANITIZE:[A-Z]*=.' "$TANDEM_BUILD/CMakeCache.txt"; then
    echo "skipped: sanitizers bring their own flags" >&2
    exit 77
fi

# --- the rule itself: it finds what it is for -----------------------------------------------------
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$TANDEM_BUILD/CMakeCache.txt")
echo 'int main(void) { return 0; }' >main.c
hard="-fPIE -pie -Wl,-z,relro,-z,now,-z,noexecstack"
$cc $hard -Wl,-rpath,'$ORIGIN/../lib:/usr/lib' -o good main.c
elf_check good || complain "a good file is refused"
refused() {
    elf_check ./bad >faults.txt && complain "not found: $1"
    grep -q "$1" faults.txt || complain "wanted '$1', found '$(cat faults.txt)'"
}
for list in /usr/lib: :/usr/lib /usr/lib::/lib; do
    $cc $hard -Wl,-rpath,$list -o bad main.c
    refused 'empty element'
done
$cc $hard -Wl,-rpath,lib:/usr/lib -o bad main.c
refused 'relative element'
$cc $hard -Wl,-z,norelro -o bad main.c
refused relocations
$cc $hard -Wl,-z,lazy -o bad main.c
refused lazily
$cc $hard -Wl,-z,execstack -o bad main.c
refused stack
$cc $hard -no-pie -o bad main.c
refused addresses

# --- everything that was built ---------------------------------------------------------------------
# a program whose source has gone may still lie in the build folder
find "$TANDEM_SOURCE/tests" "$TANDEM_SOURCE/examples" -name '*.c' -printf '%f\n' | while read -r source; do
    name=${source%.c}
    ls "$TANDEM_BUILD/tests/$name" "$TANDEM_BUILD/examples/$name" 2>/dev/null
done >programs.txt
[ "$(wc -l <programs.txt)" -ge 50 ] || complain "only $(wc -l <programs.txt) programs of tests were found"
ls "$TANDEM_BUILD/tandem" "$TANDEM_BUILD/libtandem.so" >built.txt || complain "the command or the library was not built"
ls "$TANDEM_BUILD"/libtandem_mpi_*.so "$TANDEM_BUILD/installed/tandem" "$TANDEM_BUILD/installed/libtandem.so" 2>/dev/null >>built.txt
cat programs.txt >>built.txt
elf_check $(cat built.txt) || complain "faults in $(wc -l <built.txt) built files"

# a library in the current folder is not the one that is loaded
mkdir here
for library in $(readelf -dW "$TANDEM" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    echo "not a library" >"here/$library"
done
(cd here && env -u LD_LIBRARY_PATH "$TANDEM" version) >version.txt 2>&1 ||
    complain "a library of the current folder was loaded: $(cat version.txt)"

# --- how it was compiled --------------------------------------------------------------------------
readelf --dyn-syms -W "$TANDEM" >symbols.txt
grep -q '__stack_chk_fail' symbols.txt || complain "no stack protector"
grep -q '__[a-z]*_chk\(@\| \|$\)' symbols.txt || complain "no checked string functions (_FORTIFY_SOURCE)"
level=2
echo 'int main(int n, char **v) { return n + (int)__builtin_dynamic_object_size(v, 0); }' >sizes.c
$cc -o sizes sizes.c 2>/dev/null && level=3
if grep -q '^CMAKE_BUILD_TYPE:[A-Z]*=Release' "$TANDEM_BUILD/CMakeCache.txt"; then
    for flag in -D_FORTIFY_SOURCE=$level -fstack-protector-strong; do
        weak=$(awk -v flag="$flag" -v src=" -c $TANDEM_SOURCE/src/" '/"command":/ && index($0, src) && !index($0, " " flag " ") { n++ } END { print n + 0 }' \
            "$TANDEM_BUILD/compile_commands.json")
        [ "$weak" = 0 ] || complain "$weak files were compiled without $flag"
    done
    grep -q -- "-D_FORTIFY_SOURCE=$level" "$TANDEM_BUILD/compile_commands.json" || complain "nothing was compiled with -D_FORTIFY_SOURCE=$level"
fi
exit $failed
