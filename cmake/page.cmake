# Embeds the web page in the program: the files of web/, docs/openapi.json, and the libraries of
# web/libraries.txt that this machine has. Without a library, the page shows its content as plain
# text, and the build reports it.
#
#   weft_page(TARGET)    adds page_files.cc, the PageFiles() that src/serve/page.h declares

# Makes one script of the Node package in `folder`, and sets `out` to its path; to "" if the package is
# not in the form that bundle_modules.cmake reads.
function(weft_page_bundle out name folder)
  set(${out} "" PARENT_SCOPE)
  string(REGEX REPLACE "/$" "" folder ${folder})
  if(NOT EXISTS ${folder}/lib/index.js)
    return()
  endif()
  set(script ${CMAKE_BINARY_DIR}/page_bundles/${name})
  set(bundle ${CMAKE_SOURCE_DIR}/cmake/bundle_modules.cmake)
  file(GLOB_RECURSE modules CONFIGURE_DEPENDS ${folder}/*.js)
  add_custom_command(OUTPUT ${script}
    COMMAND ${CMAKE_COMMAND} -DROOT=${folder} -DOUT=${script} -P ${bundle}
    DEPENDS ${bundle} ${modules} VERBATIM COMMENT "Bundling ${name}")
  set(${out} ${script} PARENT_SCOPE)
endfunction()

# Sets `out` to a list of NAME|PATH and reports missing libraries.
function(weft_page_libraries out)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    ${CMAKE_SOURCE_DIR}/web/libraries.txt)
  file(STRINGS ${CMAKE_SOURCE_DIR}/web/libraries.txt lines REGEX "^[^#]")
  set(found "")
  set(missing "")
  foreach(line ${lines})
    string(REPLACE " " ";" words "${line}")
    list(GET words 0 name)
    list(GET words 1 pattern)
    list(GET words 2 package)
    if(pattern MATCHES "/$")
      weft_page_bundle(paths ${name} ${pattern})
    else()
      file(GLOB paths ${pattern})
    endif()
    if(NOT paths)
      list(APPEND missing ${package})
    endif()
    foreach(path ${paths})
      set(full ${name})
      if(name MATCHES "/$")
        get_filename_component(file ${path} NAME)
        string(APPEND full ${file})
      endif()
      list(APPEND found "${full}|${path}")
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES missing)
  if(missing)
    list(JOIN missing " " words)
    message(NOTICE "-- The page shows formulas, code or Markdown as plain text; Debian packages that "
      "are missing: ${words}")
  endif()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

function(weft_page target)
  weft_page_libraries(libraries)
  find_program(GZIP_PROGRAM gzip)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/web/*)
  set(paths ${files} ${CMAKE_SOURCE_DIR}/docs/openapi.json)
  foreach(pair ${libraries})
    string(REGEX REPLACE "^[^|]*[|]" "" path ${pair})
    list(APPEND paths ${path})
  endforeach()
  set(embed ${CMAKE_SOURCE_DIR}/cmake/embed.cmake)
  set(out ${CMAKE_BINARY_DIR}/page_files.cc)
  # Passes a list as one word: the shell would split it.
  string(REPLACE ";" "," libraries "${libraries}")
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${CMAKE_SOURCE_DIR}/web -DOUT=${out}
      -DWORK=${CMAKE_BINARY_DIR}/page -DLIBRARIES=${libraries} -DGZIP=${GZIP_PROGRAM} -P ${embed}
    DEPENDS ${paths} ${embed} VERBATIM
    COMMENT "Embedding the web page")
  target_sources(${target} PRIVATE ${out})
endfunction()
