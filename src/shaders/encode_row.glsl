// Rows to int8 by the kernel that makes them (codes.glsl): a workgroup has a row, each invocation
// every so-manieth column of it, and puts kEncodeTurns of them where their neighbours find them.
#include "codes.glsl"

const uint kEncodeTurns = 4;
const uint kRowTurn = kEncodeTurns * gl_WorkGroupSize.x;  // columns
shared float encode_columns[kEncodes ? kRowTurn : 1];

// The columns that stand there, of `count` that are left: the first is column `begin` of all rows.
// All invocations call it.
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
