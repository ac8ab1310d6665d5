// The guard of every kernel: in a submission that has been given up (exchange.comp) it does nothing.
// Specialization constant 30: whether it looks at the word that says so (gpu/guard.h). Its address
// is no constant: code would differ from start to start, and no cache of pipelines would know it.
// Included before main() is defined, which becomes what the real one calls.
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
