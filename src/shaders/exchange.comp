// A sum over ranks in the middle of a submission (exchange.glsl).
#version 460
#include "head.glsl"
#include "exchange.glsl"

layout(push_constant, scalar) uniform Args {
    EXCHANGE_ARGS
    Floats sum;
};

void main() {
    Exchange(gate, part, to_host, from_host, count, index, sum);
}
