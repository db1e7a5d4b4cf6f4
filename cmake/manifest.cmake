# manifest.cmake -- at install time: a list of what was installed and of its contents, for `make uninstall`
#
# PREFIX/share/tandem/manifest.txt, a line for each file: SHA-256 or `link:TARGET`, two blanks, path below PREFIX
set(lines "")
foreach(file IN LISTS CMAKE_INSTALL_MANIFEST_FILES)
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}" OUTPUT_VARIABLE name)
    set(placed "$ENV{DESTDIR}${file}")
    if(IS_SYMLINK "${placed}")
        file(READ_SYMLINK "${placed}" target)
        string(APPEND lines "link:${target}  ${name}\n")
    elseif(NOT IS_DIRECTORY "${placed}")
        file(SHA256 "${placed}" digest)
        string(APPEND lines "${digest}  ${name}\n")
    endif()
endforeach()
file(WRITE "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share/tandem/manifest.txt" "${lines}")
