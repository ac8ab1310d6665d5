# Writes OUT, the commit that src/cluster/join/build.h declares. Touches OUT only after a change, so
# that a build of the same commit compiles nothing.
#   cmake -DROOT=. -DOUT=commit.cc [-DGIVEN=1f3da7147a20] -P commit.cmake
# Sources of the commit in order: GIVEN, git, cmake/commit_of_archive.txt as filled in by 'git
# archive'.

set(commit unknown)
set(date "")
file(READ ${ROOT}/cmake/commit_of_archive.txt archive)
if(archive MATCHES "^([0-9a-f]+) ([0-9-]+)")
  string(SUBSTRING ${CMAKE_MATCH_1} 0 12 commit)
  set(date ${CMAKE_MATCH_2})
endif()
if(EXISTS ${ROOT}/.git)  # a clone; not a folder somewhere below another one's
  find_program(GIT git)
  if(GIT)
    # Ignores the folder's owner: in a container, it is often another user.
    set(git ${GIT} -c safe.directory=* -C ${ROOT})
    execute_process(COMMAND ${git} describe --always --dirty --exclude=* --abbrev=12
      OUTPUT_VARIABLE said OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status ERROR_QUIET)
    if(status EQUAL 0 AND said MATCHES "^[0-9a-f]+(-dirty)?$")
      set(commit ${said})
      execute_process(COMMAND ${git} log -1 --format=%cs OUTPUT_VARIABLE date
        OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
  endif()
endif()
if(GIVEN)
  if(NOT GIVEN MATCHES "^[A-Za-z0-9._+-]+$")
    message(FATAL_ERROR "WEFT_COMMIT=${GIVEN}: expected letters, digits and ._+- alone")
  endif()
  string(LENGTH ${GIVEN} length)
  if(length GREATER 64)  # kMostCommit of src/cluster/join/build.h
    message(FATAL_ERROR "WEFT_COMMIT=${GIVEN}: expected at most 64 characters, not ${length}")
  endif()
  set(commit ${GIVEN})
endif()

set(text "// Made by cmake/commit.cmake.
#include \"cluster/join/build.h\"

namespace weft::cluster {

const char* Commit() {
    return \"${commit}\";
}

const char* CommitDate() {
    return \"${date}\";
}

}  // namespace weft::cluster
")
file(CONFIGURE OUTPUT ${OUT} CONTENT "${text}" @ONLY)  # touched only where it changed
