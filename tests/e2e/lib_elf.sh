# lib_elf.sh -- what every program and shared library has that we link, by readelf

# elf_check FILE...: one line for each fault, and failure if there is one
#
# The folders in which a file searches libraries are absolute or relative to the file itself: an empty or a
# relative element is the current folder, where anybody may have put a library.
elf_check() {
    readelf -dlW "$@" >readelf.txt || return 1
    awk -v forbidden="${ELF_FORBIDDEN:-}" -v one="$1" '
        function fault(text) { print "elf: " file ": " text; bad = 1 }
        function leave() {
            if (file == "") return
            if (!pic) fault("its addresses are fixed (no PIE, no -fPIC)")
            if (!relro) fault("no read-only relocations (-z relro)")
            if (!now) fault("functions are bound lazily (-z now)")
            if (!stack) fault("the stack is executable, or nothing is known of it")
        }
        function paths(list, i, n, part) {
            n = split(list, part, ":")
            if (list == "") fault("an empty RUNPATH")
            for (i = 1; i <= n; i++) {
                if (part[i] == "") fault("an empty element in RUNPATH [" list "]: the current folder")
                else if (part[i] !~ /^\/|^\$ORIGIN(\/|$)/) fault("a relative element in RUNPATH [" list "]")
                else if (forbidden != "" && index(part[i], forbidden) == 1) fault("RUNPATH [" list "] leads into the build")
            }
        }
        function enter(name) { leave(); file = name; pic = relro = now = stack = 0; n_files++ }
        BEGIN { file = "" }
        /^File: / { enter(substr($0, 7)) }
        /^Elf file type is/ { if (n_files == 0) enter(one); if ($5 == "DYN") pic = 1 }
        $1 == "GNU_RELRO" { relro = 1 }
        $1 == "GNU_STACK" && !/ RWE / { stack = 1 }
        /\(FLAGS\).*BIND_NOW/ || /\(FLAGS_1\).* NOW/ { now = 1 }
        /\(RUNPATH\)|\(RPATH\)/ { list = $0; sub(/^[^\[]*\[/, "", list); sub(/\]$/, "", list); paths(list) }
        END { leave(); exit bad || !n_files }' readelf.txt
}
