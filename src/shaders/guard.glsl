// The guard of every kernel: in an abandoned submission (exchange.comp), the kernel does nothing.
// Specialization constant 30: whether it checks the stop word (gpu/vulkan/guard.h). The word's address is
// not a constant, since the code would then differ between runs, and pipeline caches would never
// match.
// Must be included before main() is defined; it renames main to the function that the real main
// calls.
#ifndef GUARD
#define GUARD

layout(constant_id = 30) const uint kGuarded = 0;
layout(set = 0, binding = 0, std430) readonly buffer StopWord { uint told; } stop_word;

void Guarded();
void main() {
    if (kGuarded != 0 && stop_word.told != 0) return;
    Guarded();
}
#define main Guarded
#endif
