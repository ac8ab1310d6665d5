# All kernels with one subgroup size take 15 CPU minutes on lavapipe.
math(EXPR night_seconds "3 * ${WEFT_TEST_SECONDS}")
# Lavapipe uses all cores of small machines: nightly tests leave them to each other, because a
# submission that gets no core for 10 s is an error.
set(night_cores 4)

# Whole jobs on a Vulkan device. Exit status 77: no device can be used.
find_program(PYTHON3 python3 REQUIRED)
set(no_tests "Running 0 tests from 0 test suites")  # a filter that matches none
function(vulkan_job name)
  cmake_parse_arguments(job "" "" "COMMAND;CONFIGURATIONS" ${ARGN})
  set(seconds ${WEFT_TEST_SECONDS})
  if(job_CONFIGURATIONS)
    set(job_CONFIGURATIONS CONFIGURATIONS ${job_CONFIGURATIONS})
    set(seconds ${night_seconds})
  endif()
  add_test(NAME vulkan.${name} COMMAND ${PYTHON3} ${job_COMMAND} ${job_CONFIGURATIONS})
  set_tests_properties(vulkan.${name} PROPERTIES LABELS vulkan SKIP_RETURN_CODE 77
    RESOURCE_LOCK vulkan_job TIMEOUT ${seconds} FAIL_REGULAR_EXPRESSION "${no_tests}"
    ENVIRONMENT "VK_DRIVER_FILES=${WEFT_LAVAPIPE}/icd.json;VK_ICD_FILENAMES=${WEFT_LAVAPIPE}/icd.json;WEFT_STANDINS=${CMAKE_BINARY_DIR}/standin"
    ENVIRONMENT_MODIFICATION LD_LIBRARY_PATH=path_list_prepend:${WEFT_LAVAPIPE}/lib)
  if(job_CONFIGURATIONS)
    set_tests_properties(vulkan.${name} PROPERTIES PROCESSORS ${night_cores})
  endif()
endfunction()
set(here ${CMAKE_CURRENT_LIST_DIR})
# Daily: one job of each kind; nightly: all of them.
vulkan_job(jobs COMMAND ${here}/jobs_test.py $<TARGET_FILE:weft>
  Jobs.test_answers_are_those_of_the_cpu Jobs.test_logits_are_near_those_of_the_reference
  Jobs.test_layouts_hold_the_same_bits_and_are_near_one_rank
  UnlikeDevices.test_the_start_up_proof_knows_how_unlike_devices_round
  UnlikeDevices.test_tensor_ranks_are_refused_by_both_names Refusals
  Serving.test_a_rank_that_is_killed_is_started_again)
vulkan_job(all_jobs COMMAND ${here}/jobs_test.py $<TARGET_FILE:weft> CONFIGURATIONS nightly)
if(NOT WEFT_SANITIZE)  # a sanitizer's own memory is not ours
  vulkan_job(memory COMMAND ${here}/memory_test.py $<TARGET_FILE:weft>
    Memory.test_two_tensor_ranks CONFIGURATIONS nightly)
  vulkan_job(memory_of_one_rank COMMAND ${here}/memory_test.py $<TARGET_FILE:weft>
    Memory.test_one_rank CONFIGURATIONS nightly)
endif()

# weft as built by -DWEFT_GPU=OFF: the same objects, with src/gpu/none.cc and no shaders.
set(without_gpu weft)
if(weft_shaders)
  set(without_gpu weft_without_gpu)
  add_executable(weft_without_gpu $<TARGET_OBJECTS:weft> ${CMAKE_SOURCE_DIR}/src/gpu/none.cc
    ${CMAKE_SOURCE_DIR}/src/gpu/common.cc ${CMAKE_SOURCE_DIR}/src/gpu/cards.cc ${here}/no_shaders.cc)
  target_link_libraries(weft_without_gpu PRIVATE $<TARGET_PROPERTY:weft,LINK_LIBRARIES>)
endif()
add_test(NAME vulkan.without
  COMMAND ${PYTHON3} ${here}/without_test.py $<TARGET_FILE:${without_gpu}>)
set_tests_properties(vulkan.without PROPERTIES LABELS vulkan TIMEOUT ${WEFT_TEST_SECONDS})

# Kernels with other subgroup sizes than this CPU's: lavapipe's size can be set. Each size has a
# separate cache, because Mesa's does not distinguish their code.
function(subgroups_test name size bits filter)
  add_test(NAME vulkan.${name} COMMAND vulkan_tests --gtest_filter=VulkanSubgroups.*:${filter} ${ARGN})
  set_tests_properties(vulkan.${name} PROPERTIES LABELS vulkan TIMEOUT ${night_seconds}
    PROCESSORS ${night_cores}
    ENVIRONMENT "WEFT_LAVAPIPE=${WEFT_LAVAPIPE};WEFT_TEST_SUBGROUP=${size};LP_NATIVE_VECTOR_WIDTH=${bits};MESA_SHADER_CACHE_DIR=${CMAKE_BINARY_DIR}/lavapipe-${bits}"
    ENVIRONMENT_MODIFICATION LD_LIBRARY_PATH=path_list_prepend:${WEFT_LAVAPIPE}/lib)
endfunction()
set(all_kernels "VulkanProducts*:VulkanIntegers*:VulkanMatrix*:VulkanGlu*:VulkanExperts*:VulkanRows*:\
VulkanTrain*:VulkanLoss*:VulkanUpdate*:VulkanCausal*:\
VulkanAttention*:VulkanLatent*:VulkanPages*:VulkanTop*:VulkanEncodes*:VulkanRoute*:VulkanGate.W*:\
VulkanGate.StepsHave*:VulkanGemm*")
foreach(width 4:128 8:256 16:512)
  string(REPLACE ":" ";" width ${width})
  list(GET width 0 size)
  list(GET width 1 bits)
  subgroups_test(all_subgroups_of_${size} ${size} ${bits} "${all_kernels}" CONFIGURATIONS nightly)
  subgroups_test(models_in_subgroups_of_${size} ${size} ${bits} "*VulkanFused.SameBits*"
    CONFIGURATIONS nightly)
endforeach()

# Kernels for matrix units, on a lavapipe that has them, in a root of Debian 13.
if(weft_shaders AND NOT WEFT_SANITIZE)
  add_test(NAME vulkan.matrix_units COMMAND ${PYTHON3} ${here}/matrix_units_test.py
    ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR} CONFIGURATIONS nightly)
  set_tests_properties(vulkan.matrix_units PROPERTIES LABELS vulkan TIMEOUT 7200
    SKIP_RETURN_CODE 77)
endif()

# A suite with an empty home, as on a machine that never ran it.
add_test(NAME vulkan.empty_home COMMAND ${PYTHON3} ${here}/empty_home.py
  $<TARGET_FILE:vulkan_tests>
  --gtest_filter=VulkanExecutable.AnyPartition*:VulkanExecutable.MemoryThatTheHost*
  CONFIGURATIONS nightly)
set_tests_properties(vulkan.empty_home PROPERTIES LABELS vulkan TIMEOUT ${WEFT_TEST_SECONDS}
  SKIP_REGULAR_EXPRESSION "\\[  PASSED  \\] 0 tests"
  ENVIRONMENT "WEFT_LAVAPIPE=${WEFT_LAVAPIPE}"
  ENVIRONMENT_MODIFICATION LD_LIBRARY_PATH=path_list_prepend:${WEFT_LAVAPIPE}/lib)

# Loaders in front of the real one: a GPU that is taken away from a rank; simulated GPUs; commands
# in another order.
if(weft_vulkan)
  foreach(loader lost_gpu other_gpus reorder)
    add_library(${loader} MODULE ${here}/${loader}.cc)
    target_compile_features(${loader} PRIVATE cxx_std_20)
    target_compile_options(${loader} PRIVATE -Wall -Wextra -Werror -fno-sanitize=all)
    target_link_options(${loader} PRIVATE -fno-sanitize=all)
    target_link_libraries(${loader} PRIVATE ${CMAKE_DL_LIBS})
  endforeach()
  set(reorder ${here}/reorder_test.py $<TARGET_FILE:reorder> $<TARGET_FILE:vulkan_tests>)
  vulkan_job(reorder COMMAND ${reorder}
    "VulkanExecutable.ExpertsGive*:VulkanExecutable.RecurrentState:VulkanExecutable.SequencesOfOneStep")
  vulkan_job(reorder_all COMMAND ${reorder} "VulkanExecutable.*" CONFIGURATIONS nightly)
  set(lost_gpu ${here}/lost_gpu_test.py $<TARGET_FILE:weft> $<TARGET_FILE:lost_gpu>)
  vulkan_job(lost_gpu COMMAND ${lost_gpu} LostGpu.test_it_is_named_and_the_job_ends
    LostGpu.test_one_that_does_not_answer_is_named)
  vulkan_job(all_lost_gpus COMMAND ${lost_gpu} CONFIGURATIONS nightly)
  set(other_gpus ${here}/other_gpus_test.py $<TARGET_FILE:weft> $<TARGET_FILE:other_gpus>
    $<TARGET_FILE:tiny_model>)
  vulkan_job(other_gpus COMMAND ${other_gpus} Auto Ranks Failures.test_some_are_errors)
  vulkan_job(all_other_gpus COMMAND ${other_gpus} Auto Ranks Kinds Shares Training
    CONFIGURATIONS nightly)
  vulkan_job(failing_gpus COMMAND ${other_gpus} Failures.test_each_is_an_error
    CONFIGURATIONS nightly)
  set_tests_properties(vulkan.failing_gpus PROPERTIES TIMEOUT 7200)  # hundreds of jobs
  set(training ${here}/training_test.py $<TARGET_FILE:weft> ${CMAKE_BINARY_DIR}/vulkan-cache
    $<TARGET_FILE:other_gpus>)
  vulkan_job(training COMMAND ${training} Curves.test_full
    Failures.test_a_run_that_diverges_names_the_op
    Files.test_a_checkpoint_goes_from_device_to_device)
  vulkan_job(training_of_all_kinds COMMAND ${training} CONFIGURATIONS nightly)
  # On cards: weights through staging buffers, copied pages, values read back.
  set(jobs_on_a_card ${here}/on_a_card.py $<TARGET_FILE:other_gpus> ${here}/jobs_test.py
    $<TARGET_FILE:weft>)
  vulkan_job(all_serving_on_a_card COMMAND ${jobs_on_a_card} Serving CONFIGURATIONS nightly)
  # (Not tests that poll: a simulated card has no cores of its own.)
  vulkan_job(jobs_on_a_card COMMAND ${jobs_on_a_card} UnlikeDevices Jobs.test_perplexity
    Jobs.test_answers_are_those_of_the_cpu Jobs.test_logits_are_near_those_of_the_reference
    Jobs.test_layouts_hold_the_same_bits_and_are_near_one_rank
    Jobs.test_the_start_up_proof_compares_with_the_record_of_one_rank CONFIGURATIONS nightly)
endif()

# Models and kernels on the stand-ins of CUDA and HIP (tests/gpu/standin). Most of the time goes to
# compiling kernels, which the stand-ins keep.
if(weft_vulkan)
  # (Daily, the other API has the tests of devices: gpu.standin.)
  standin_test(vulkan.standin hip COMMAND vulkan_tests --gtest_filter=All/VulkanGolden.*/llama)
  foreach(api cuda hip)
    standin_test(vulkan.all_on_standin ${api} COMMAND vulkan_tests
      --gtest_filter=*VulkanGolden*:*VulkanFamilies*:${all_kernels} CONFIGURATIONS nightly)
    set_tests_properties(vulkan.all_on_standin.${api} PROPERTIES TIMEOUT 7200
      PROCESSORS ${night_cores})
  endforeach()
  add_test(NAME vulkan.standin_jobs COMMAND ${PYTHON3} ${here}/standin_test.py $<TARGET_FILE:weft>
    ${CMAKE_BINARY_DIR}/standin)
  set_tests_properties(vulkan.standin_jobs PROPERTIES LABELS vulkan TIMEOUT ${WEFT_TEST_SECONDS})
endif()

# Tests of whole jobs that also run on the CPU. Excluded tests require the CPU's bits, as caches of
# narrow types do, which round other sums to other steps: on a GPU, a row has different bits in steps
# of more than 8 rows (docs/gpu.md). Experts on the drive are the processor's.
set(on_vulkan_words $<TARGET_FILE:weft> ${CMAKE_BINARY_DIR}/vulkan-cache)
set(on_vulkan ${here}/on_vulkan.py ${on_vulkan_words})
function(on_vulkan_test name filter)
  vulkan_job(${name} COMMAND ${on_vulkan} $<TARGET_FILE:cli_tests> --gtest_filter=${filter} ${ARGN})
endfunction()
on_vulkan_test(reported_drafts "Drafts.AreReported*")
on_vulkan_test(every_layout "Layouts*:Feed.*:Lora.*-Layouts.KvTypes" CONFIGURATIONS nightly)
on_vulkan_test(every_expert "ExpertRuns.*-*KeepTheBits:*OnTheDriveAreKept:*SparseAttention*"
  CONFIGURATIONS nightly)
on_vulkan_test(drafts "Drafts.*" CONFIGURATIONS nightly)
on_vulkan_test(faults "Faults.*-*ManyRuns*" CONFIGURATIONS nightly)
# A rank that is lost within a submission (--gpu-allreduce spin).
vulkan_job(spin_faults COMMAND ${here}/on_vulkan.py --spin ${on_vulkan_words}
  $<TARGET_FILE:cli_tests> --gtest_filter=Faults.InPrefill*:Faults.InDecode* CONFIGURATIONS nightly)
# (IsReportedInJson: 5,000 tokens on three ranks take several minutes here.)
on_vulkan_test(recovery "Recovery.*-*IsReportedInJson" CONFIGURATIONS nightly)
vulkan_job(serve_drafts COMMAND ${here}/on_vulkan.py --reference ${on_vulkan_words} ${PYTHON3}
  ${CMAKE_SOURCE_DIR}/tests/serve/draft_test.py {} ${CMAKE_SOURCE_DIR}/build/python-packages
  CONFIGURATIONS nightly)
# Encoders in every layout, with the scores and embeddings of transformers.
set(encoders ${here}/on_vulkan.py ${on_vulkan_words} ${PYTHON3}
  ${CMAKE_SOURCE_DIR}/tests/serve/encoder_test.py {} ${CMAKE_SOURCE_DIR}/build/python-packages)
vulkan_job(encoders COMMAND ${encoders} Encoders.test_rerank Encoders.test_scores)
vulkan_job(all_encoders COMMAND ${encoders} CONFIGURATIONS nightly)
# The users' benchmark runs to its end.
if(weft_shaders AND WEFT_BENCH)
  vulkan_job(bench COMMAND ${here}/bench_test.py ${CMAKE_BINARY_DIR} CONFIGURATIONS nightly)
endif()

# The kernels of models in AMD's compiler, without a GPU.
if(weft_vulkan AND weft_shaders AND WEFT_BENCH)
  add_test(NAME vulkan.kernels COMMAND ${PYTHON3} ${CMAKE_SOURCE_DIR}/bench/kernels.py --check
    --build ${CMAKE_BINARY_DIR} CONFIGURATIONS nightly)
  set_tests_properties(vulkan.kernels PROPERTIES LABELS vulkan TIMEOUT ${WEFT_TEST_SECONDS}
    SKIP_RETURN_CODE 77)
endif()
