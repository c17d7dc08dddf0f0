# cmake -DSOURCE=FOLDER -DYAML_CPP=VERSION -DOUTPUT=FILE -P build_info.cmake: writes the source of core/build_info.hpp, and touches
# it only where that changes. A repository that merely surrounds the sources isn't theirs.
set(revision "unknown revision")
find_program(GIT git)
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT} rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE} RESULT_VARIABLE failed OUTPUT_VARIABLE head
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed)
    set(revision ${head})
    execute_process(COMMAND ${GIT} status --porcelain --untracked-files=no WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      string(APPEND revision " with changes")
    endif()
  endif()
endif()
set(text "#include \"core/build_info.hpp\"

namespace forge {

std::string program_revision() {
  return \"${revision}\";
}

std::string yaml_cpp_version() {
  return \"${YAML_CPP}\";
}

}  // namespace forge
")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUTPUT} "${text}")
endif()
