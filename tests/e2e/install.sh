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

mkdir -p "$prefix/share/man" # not the installation's, even when it is empty
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

# what the examples are given
"$prefix/bin/tandem" dataset draw set --classes 2 --train 2 --val 2 --size 48 >draw.txt
image=$(find "$PWD/set/val" -type f | sort | sed -n 1p)
"$prefix/bin/tandem" init --arch resnet18 --num-classes 2 --image-size 32 -o classes.safetensors >init.txt
"$prefix/bin/tandem" init --arch ssd320 --backbone resnet18 --num-classes 2 --image-size 160 -o boxes.safetensors >init.txt
arguments() {
    case $1 in
    classify_image) echo "$PWD/classes.safetensors $image absent.jpg" ;;
    detect_objects) echo "$PWD/boxes.safetensors $image absent.jpg" ;;
    esac
}

n=0
for source in "$TANDEM_SOURCE"/examples/*.c; do
    name=$(basename "$source" .c)
    with=$(arguments "$name")
    wanted=0
    [ -z "$with" ] || wanted=1 # absent.jpg

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
        code=0
        # shellcheck disable=SC2086
        (cd "$name" && "./$program" $with >"$(basename "$program").txt") || code=$?
        [ $code = $wanted ] || fail "$name/$program ends with $code, wanted $wanted"
        [ -z "$with" ] || grep -q '^absent.jpg: .*No such file' "$name/$(basename "$program").txt" ||
            fail "$name/$program does not report the missing file"
    done
    [ -s "$name/by_cmake.txt" ] || fail "$name prints nothing"
    cmp "$name/by_pkg_config.txt" "$name/by_static.txt" || fail "$name: shared and static library disagree"
    n=$((n + 1))
done
[ $n -gt 0 ] || fail "no examples"
grep -Eq '^/.*: +[0-9.]+ % class [01]$' classify_image/by_cmake.txt || fail "classify_image prints no class"
grep -q '^/.*: 48 x 48 pixels, [0-9]* boxes$' detect_objects/by_cmake.txt || fail "detect_objects prints no size"

# --- the unit of the service ----------------------------------------------------------------------
unit=$prefix/lib/systemd/system/tandem-serve.service
grep -q '^ExecStart=/.*/bin/tandem serve \$TANDEM_SERVE_OPTIONS$' "$unit" || fail "tandem-serve.service starts something else"
if command -v systemd-analyze >/dev/null 2>&1; then
    sed "s|^ExecStart=[^ ]*|ExecStart=$prefix/bin/tandem|" "$unit" >tandem-serve.service
    systemd-analyze verify --man=no ./tandem-serve.service >verify.txt 2>&1 || true # it judges the machine's other units, too
    ! grep 'tandem-serve' verify.txt || fail "systemd-analyze finds faults in tandem-serve.service"
    # 0 to 100: what a service could do to its machine
    if systemd-analyze security --help 2>&1 | grep -q -- --threshold; then
        systemd-analyze security --offline=yes --threshold=25 ./tandem-serve.service >verify.txt 2>&1 ||
            { cat verify.txt; fail "tandem-serve.service is exposed"; }
    fi
fi

# --- uninstall: what was installed, and nothing else ----------------------------------------------
uninstall() {
    code=0
    cmake -DPREFIX="$prefix" -P "$TANDEM_SOURCE/cmake/uninstall.cmake" >broken.txt 2>&1 || code=$?
    tr -s ' \n' '  ' <broken.txt >uninstall.txt # CMake breaks lines
    return $code
}
cp "$prefix/include/tandem/types.h" types.h
echo '/* mine */' >>"$prefix/include/tandem/types.h"
echo mine >"$prefix/bin/other"
cp "$prefix/share/tandem/manifest.txt" manifest.txt
for line in 'folder  ../victim' '00  ../../victim' '00  /victim' '00  bin/../../victim' 'victim' 'link:x  ..'; do
    { cat manifest.txt; echo "$line"; } >"$prefix/share/tandem/manifest.txt"
    ! uninstall || fail "uninstall accepts a manifest with '$line'"
    [ -x "$prefix/bin/tandem" ] || fail "uninstall has removed something in spite of '$line'"
done
cp manifest.txt "$prefix/share/tandem/manifest.txt"
! uninstall || fail "uninstall does not mind a changed file"
grep -q 'kept.* include/tandem/types\.h' uninstall.txt ||
    fail "uninstall says: $(cat uninstall.txt)"
[ ! -e "$prefix/bin/tandem" ] || fail "uninstall has not removed bin/tandem"
cp types.h "$prefix/include/tandem/types.h"
uninstall || fail "uninstall: $(cat uninstall.txt)"
[ "$(find "$prefix" ! -type d)" = "$prefix/bin/other" ] || fail "uninstall has left $(find "$prefix" ! -type d)"
[ -z "$(find "$prefix" -type d -iname '*tandem*')" ] || fail "uninstall has left $(find "$prefix" -type d -iname '*tandem*')"
left=$(cd "$prefix" && find . -mindepth 1 -type d | LC_ALL=C sort | tr '\n' ' ')
[ "$left" = './bin ./share ./share/man ' ] || fail "uninstall has left the folders $left"
! uninstall || fail "uninstall works without a manifest"
grep -q 'manifest\.txt' uninstall.txt || fail "uninstall says: $(cat uninstall.txt)"

# --- the tarball: the same bytes twice, complete, and it needs no git -----------------------------
if git -C "$TANDEM_SOURCE" rev-parse HEAD >/dev/null 2>&1; then
    version=$(cut -d ' ' -f 2 version.txt)
    make -s -C "$TANDEM_SOURCE" dist >dist.txt
    cp "$TANDEM_SOURCE/build/tandem-$version.tar.gz" first.tar.gz
    make -s -C "$TANDEM_SOURCE" dist >dist.txt
    cmp first.tar.gz "$TANDEM_SOURCE/build/tandem-$version.tar.gz" || fail "make dist makes another file each time"
    tar -xzf first.tar.gz
    [ -s "tandem-$version/LICENSE" ] && [ ! -e "tandem-$version/.git" ] || fail "the tarball is not the tree"
    cmake -S "tandem-$version" -B dist -G Ninja -DTANDEM_DEPS="$(sed -n 's/^TANDEM_DEPS:PATH=//p' "$TANDEM_BUILD/CMakeCache.txt")" \
        -DCMAKE_C_COMPILER="$cc" -DTANDEM_TESTS=OFF >dist.log 2>&1 && ninja -C dist CMakeFiles/tandem_objects.dir/src/base/version.c.o >>dist.log ||
        { cat dist.log; fail "the tarball does not build"; }
fi
