# lib_options.sh -- sourced by tests, after lib.sh: options that have no effect or are not supported
#
#   lists_options                `tandem help options` into ./list: VERB, --option, kind, a value, spellings, tabs between
#   tries ARGUMENTS...           run, whatever the exit code is: it goes to $code
#   has_no_effect VERB --option=VALUE ...   the log names the option as one without effect
#   walks_refusals               each row of ./list that is accepted for the reference programs' sake is named by the log
#                                with the reason, each that is refused is an error with the reason
tab=$(printf '\t')

lists_options() {
    expect 0 help options
    [ "$(head -1 out)" = "verb${tab}option${tab}kind${tab}default${tab}spellings" ] || complain "the first line is $(head -1 out)"
    tail -n +2 out >list
    [ "$(wc -l <list)" -gt 350 ] || complain "only $(wc -l <list) rows"
}

tries() {
    last="tandem $*"
    code=0
    "$TANDEM" "$@" >out 2>err </dev/null || code=$?
}

# with an argument that does not exist, so that nothing is run; or without, where the verb takes none
has_no_effect() {
    tries "$@" absent
    grep -q -e "${2%%=*} has no effect: " err && return
    tries "$@"
    says "${2%%=*} has no effect: "
}

walks_refusals() {
    while IFS=$tab read -r verb option kind value spellings; do
        case $kind in
        accepted) has_no_effect "$verb" "$option=x" ;;
        refused)
            expect 2 "$verb" "$option"
            says "^tandem: error: $option .*: "
            ;;
        esac
    done <list
}
