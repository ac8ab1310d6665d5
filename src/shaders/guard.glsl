// The guard of every kernel: in a submission that has been given up (exchange.comp) it does nothing.
// Specialization constants 30 and 31: the address of the word that says so, 0: there is none.
// Included before main() is defined, which becomes what the real one calls.
#ifndef GUARD
#define GUARD
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

layout(constant_id = 30) const uint kStopLow = 0;
layout(constant_id = 31) const uint kStopHigh = 0;
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer StopWord { uint told; };

void Guarded();
void main() {
    if ((kStopLow | kStopHigh) != 0 &&
        StopWord(uint64_t(kStopHigh) << 32 | uint64_t(kStopLow)).told != 0) {
        return;
    }
    Guarded();
}
#define main Guarded
#endif
