# Sources of one folder that are compiled together, where REVERIE_UNITED_SOURCES says so: most of what a
# source costs are the headers and templates that its neighbours need too, so this halves a build.
#
# So names in the unnamed namespaces of one folder must differ, tests apart from sources; a source whose
# names are best as they are stands below. The dev and tidy presets compile each source by itself, and so
# notice a missing include.
set(reverie_united_max 8)
set(reverie_alone
    # Their parts for other processors, or another library's table, stand behind macros.
    sum_tree/sum_tree_avx512.cc sum_tree/sum_tree_avx2.cc sum_tree/sum_tree_portable.cc bindings/arrays.cc
    # Models and helpers of the same names as their neighbours'.
    agents/q_agent_test.cc replay/table_core_views_test.cc codec/reverb_column_test.cc
    integration/replay_state_test.cc sim/accumulator_sim_test.cc sim/journal_sim_test.cc sim/peers_sim_test.cc
    sim/store_sim_test.cc sim/weights_sim_test.cc)
list(JOIN reverie_alone "|" reverie_alone)

# reverie_unite(<target>): the target's sources by folder, some at a time. CMake leaves out those that
# have options of their own.
function(reverie_unite target)
  if(NOT REVERIE_UNITED_SOURCES)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cc$")
  list(SORT sources)
  set(folder "")
  foreach(source IN LISTS sources)
    if(source MATCHES "/(${reverie_alone})$")
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      continue()
    endif()
    cmake_path(GET source PARENT_PATH parent)
    if(NOT parent STREQUAL folder)
      set(folder ${parent})
      set(count 0)
    endif()
    cmake_path(RELATIVE_PATH parent BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE name)
    string(REGEX REPLACE "[^A-Za-z0-9]" "_" name "${name}")
    math(EXPR part "${count} / ${reverie_united_max}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${name}_${part})
    math(EXPR count "${count} + 1")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # g++ takes the unnamed namespace of a file that is included for one of a header.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()
