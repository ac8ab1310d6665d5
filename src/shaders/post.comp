// Tells the host that the device has reached an exchange, whose values it has already
// (backend/gpu/device/host_signal.h). The kernel of the exchange itself waits, later.
#version 460
#include "head.glsl"
#include "exchange.glsl"

layout(push_constant, scalar) uniform Args {
    Words gate, inbox;
    uint index;
};

void main() {
    if (gl_LocalInvocationIndex == 0) {
        Fence();
        Store(gate, kArrived, Load(inbox, kBase) + index);
    }
}
