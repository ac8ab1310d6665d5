// Encodes rows as int8 in the kernel that computes them (codes.glsl). A workgroup has a row, and an
// invocation every gl_WorkGroupSize.x-th column. Invocations exchange kEncodeTurns columns each at
// a time through shared memory.
#include "codes.glsl"

const uint kEncodeTurns = 4;
const uint kRowTurn = kEncodeTurns * gl_WorkGroupSize.x;  // columns
shared float encode_columns[kEncodes ? kRowTurn : 1];

// Encodes the shared columns, of which `count` remain; the first is column `begin` of all rows. All
// invocations must call it.
void EncodeTurn(uint64_t codes, uint64_t scales, uint begin, uint count) {
    barrier();
    const uint lane = gl_LocalInvocationIndex;
    const bool inside = 4 * lane < count;
    vec4 x = vec4(0);
    if (inside) {
        x = vec4(encode_columns[4 * lane], encode_columns[4 * lane + 1],
                 encode_columns[4 * lane + 2], encode_columns[4 * lane + 3]);
    }
    Encode(codes, scales, lane, begin / 4 + lane, x, inside);
}
