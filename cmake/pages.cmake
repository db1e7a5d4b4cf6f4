# pages.cmake -- at install time: what the command says of itself, as manual pages and completion for three shells
#
#   TANDEM   the command        PAGES   a folder for what is made
function(make_page file)
    execute_process(COMMAND ${TANDEM} help ${ARGN} OUTPUT_FILE ${PAGES}/${file} RESULT_VARIABLE failed)
    if(failed)
        message(FATAL_ERROR "tandem help ${ARGN} fails")
    endif()
endfunction()

file(MAKE_DIRECTORY ${PAGES}/man1)
execute_process(COMMAND ${TANDEM} help OUTPUT_VARIABLE overview)
string(REGEX MATCHALL "\n  [a-z]+ " verbs "${overview}")
make_page(man1/tandem.1 --man)
foreach(verb IN LISTS verbs)
    string(STRIP "${verb}" verb)
    make_page(man1/tandem-${verb}.1 --man ${verb})
endforeach()
make_page(tandem --completion bash)
make_page(_tandem --completion zsh)
make_page(tandem.fish --completion fish)

set(share ${CMAKE_INSTALL_PREFIX}/share)
file(INSTALL ${PAGES}/man1 DESTINATION ${share}/man)
file(INSTALL ${PAGES}/tandem DESTINATION ${share}/bash-completion/completions)
file(INSTALL ${PAGES}/_tandem DESTINATION ${share}/zsh/site-functions)
file(INSTALL ${PAGES}/tandem.fish DESTINATION ${share}/fish/vendor_completions.d)
