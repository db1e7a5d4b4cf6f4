# ctest: timeout 300
# install.sh -- what `make install` puts down is enough: the command runs from its prefix, and programs outside
# the tree build by pkg-config and by CMake, against the shared and the static library, and run
set -eu
. "$TANDEM_SOURCE/tests/e2e/lib_elf.sh"
prefix=$WORK/prefix
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$TANDEM_BUILD/CMakeCache.txt")

fail() {
    echo "install: $*" >&2
    exit 1
}

cmake --install "$TANDEM_BUILD" --prefix "$prefix" >install.log || fail "cmake --install failed"

# moved, so that nothing may depend on where it was installed or built
mv "$prefix" "$WORK/moved"
prefix=$WORK/moved
for file in bin/tandem include/tandem/status.h share/man/man1/tandem.1 share/man/man1/tandem-train.1 \
    share/bash-completion/completions/tandem share/zsh/site-functions/_tandem \
    share/fish/vendor_completions.d/tandem.fish; do
    [ -s "$prefix/$file" ] || fail "no $file"
done
for file in "$prefix"/bin/tandem $(find "$prefix" -name 'libtandem*.so*' -type f); do
    ELF_FORBIDDEN=$TANDEM_SOURCE elf_check "$file" || fail "faults in $file"
done
env -u LD_LIBRARY_PATH "$prefix/bin/tandem" version >version.txt || fail "the installed command does not run"
[ -s version.txt ] || fail "the installed command prints no version"

pc=$(find "$prefix" -name tandem.pc)
lib=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_PATH="$lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
pkg-config --exists tandem || fail "pkg-config does not find tandem"
grep -q "$(pkg-config --modversion tandem)" version.txt || fail "version $(cat version.txt) and tandem.pc differ"

# only what the headers offer is visible
nm -D --defined-only "$lib/libtandem.so" | awk '$2 ~ /[TDBR]/ && $3 !~ /^(td_|_edata$|_end$|__bss_start$)/ { print; bad = 1 } END { exit bad }' ||
    fail "libtandem.so shows names without td_"

n=0
for source in "$TANDEM_SOURCE"/examples/*.c; do
    name=$(basename "$source" .c)

    mkdir -p "$name"
    cp "$source" "$name/main.c"
    $cc -std=c11 -o "$name/by_pkg_config" "$name/main.c" $(pkg-config --cflags --libs tandem) -lm \
        -Wl,-rpath,"$lib" || fail "$name does not build by pkg-config"
    $cc -std=c11 -o "$name/by_static" "$name/main.c" $(pkg-config --cflags tandem) "$lib/libtandem.a" \
        $(pkg-config --static --libs tandem | sed 's/-ltandem//') -Wl,-rpath,"$lib" ||
        fail "$name does not build against libtandem.a"

    cat >"$name/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(outside C)
find_package(Tandem 0.2 REQUIRED)
add_executable(by_cmake main.c)
target_link_libraries(by_cmake PRIVATE Tandem::tandem m)
END
    cmake -S "$name" -B "$name/build" -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" \
        >"$name/cmake.log" 2>&1 && cmake --build "$name/build" >>"$name/cmake.log" 2>&1 ||
        { cat "$name/cmake.log"; fail "$name does not build by CMake"; }

    for program in by_pkg_config by_static build/by_cmake; do
        (cd "$name" && "./$program" >"$(basename "$program").txt") || fail "$name/$program does not run"
    done
    [ -s "$name/by_cmake.txt" ] || fail "$name prints nothing"
    cmp "$name/by_pkg_config.txt" "$name/by_static.txt" || fail "$name: shared and static library disagree"
    n=$((n + 1))
done
[ $n -gt 0 ] || fail "no examples"
