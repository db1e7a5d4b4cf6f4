# pages.cmake -- at install time: what the command says of itself, as manual pages and completion for three shells
#
#   TANDEM   the command        PAGES   a folder for what is made
#
# In packages (one component is installed at a time) the pages are compressed and where Debian has them.
function(make_page file)
    execute_process(COMMAND ${TANDEM} help ${ARGN} OUTPUT_FILE ${PAGES}/${file} RESULT_VARIABLE failed)
    if(failed)
        message(FATAL_ERROR "tandem help ${ARGN} fails")
    endif()
endfunction()

file(REMOVE_RECURSE ${PAGES})
file(MAKE_DIRECTORY ${PAGES}/man1)
execute_process(COMMAND ${TANDEM} help OUTPUT_VARIABLE overview)
string(REGEX MATCHALL "\n  [a-z]+ " verbs "${overview}")
make_page(man1/tandem.1 --man)
foreach(verb IN LISTS verbs)
    string(STRIP "${verb}" verb)
    make_page(man1/tandem-${verb}.1 --man ${verb})
endforeach()
if(CMAKE_INSTALL_COMPONENT)
    file(GLOB made ${PAGES}/man1/*.1)
    execute_process(COMMAND gzip -9n ${made} COMMAND_ERROR_IS_FATAL ANY)
endif()
set(zsh_dir site-functions)
if(CMAKE_INSTALL_COMPONENT)
    set(zsh_dir vendor-completions)
endif()
make_page(tandem --completion bash)
make_page(_tandem --completion zsh)
make_page(tandem.fish --completion fish)

set(share ${CMAKE_INSTALL_PREFIX}/share)
file(INSTALL ${PAGES}/man1 DESTINATION ${share}/man)
file(INSTALL ${PAGES}/tandem DESTINATION ${share}/bash-completion/completions)
file(INSTALL ${PAGES}/_tandem DESTINATION ${share}/zsh/${zsh_dir})
file(INSTALL ${PAGES}/tandem.fish DESTINATION ${share}/fish/vendor_completions.d)
