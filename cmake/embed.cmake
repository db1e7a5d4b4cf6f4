# embed.cmake -- text files that travel inside the library, as constants of C
#
#   embed_text(OUT data/imagenet_classes.txt)
#
# makes build/embedded/imagenet_classes_txt.c, which defines `const char td_embedded_imagenet_classes_txt[]` with the
# bytes of the file and a NUL byte after them, and appends its path to the list OUT.
function(embed_text out file)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${file})
    get_filename_component(name ${file} NAME)
    string(MAKE_C_IDENTIFIER ${name} name)
    file(READ ${CMAKE_SOURCE_DIR}/${file} bytes HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n" bytes "${bytes}")
    set(symbol td_embedded_${name})
    set(made ${CMAKE_BINARY_DIR}/embedded/${name}.c)
    file(CONFIGURE OUTPUT ${made} @ONLY
        CONTENT "/* made of @file@ */\nextern const char @symbol@[];\nconst char @symbol@[] = {\n@bytes@0\n};\n")
    set(${out} ${${out}} ${made} PARENT_SCOPE)
endfunction()
