# folders.cmake -- at install time, before anything is installed: which folders are not there yet
#
#   FOLDERS       what is installed goes into these, below the prefix
#   NEW_FOLDERS   the result, with their parents: manifest.cmake lists them, `make uninstall` removes them
set(NEW_FOLDERS "")
foreach(folder IN LISTS FOLDERS)
    while(folder AND NOT EXISTS "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${folder}")
        list(APPEND NEW_FOLDERS "${folder}")
        cmake_path(GET folder PARENT_PATH folder)
    endwhile()
endforeach()
