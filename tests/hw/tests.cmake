# Replaces NVIDIA's library in a test of the power meter.
add_library(fake_nvml MODULE ${CMAKE_CURRENT_LIST_DIR}/fake_nvml.cc)
target_compile_options(fake_nvml PRIVATE -fno-sanitize=all)
target_link_options(fake_nvml PRIVATE -fno-sanitize=all)
add_dependencies(hw_tests fake_nvml)
target_compile_definitions(hw_tests PRIVATE WEFT_FAKE_NVML="$<TARGET_FILE:fake_nvml>")
