// What is not ours and was built without the thread sanitizer: the validation layer of Vulkan takes
// its own locks in both orders, and lavapipe's fences are not seen.
extern "C" const char* __tsan_default_suppressions() {
    return "deadlock:libVkLayer_khronos_validation.so\n"
           "race:libVkLayer_khronos_validation.so\n"
           "race:libvulkan_lvp.so\n";
}
