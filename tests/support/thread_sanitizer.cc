// Suppresses reports in libraries built without the thread sanitizer: Vulkan's validation layer
// takes its locks in both orders, and lavapipe's fences are invisible.
extern "C" const char* __tsan_default_suppressions() {
    return "deadlock:libVkLayer_khronos_validation.so\n"
           "race:libVkLayer_khronos_validation.so\n"
           "race:libvulkan_lvp.so\n";
}
