//: matvec_@ -D@ for PLAIN CODED FP8
//: matvec_dot_@ -D@ -DDOT for CODED
//: matvec_route_@ -D@ -DROUTE for PLAIN
// Products of a weight and few rows: y[t][r] = x[t] . weight[r] + bias[r].
//
// A workgroup computes kOut rows of the output for kRows rows of x. The invocations of a workgroup
// process units of columns in turn; their sums are added by subgroups, then over subgroups. So the
// order of a sum depends only on the number of columns and the sizes of workgroup and subgroup,
// never on the rows. Products and sums are `precise` fma, which compilers cannot contract
// differently for another kRows. DOT: x is in the planes of quantize_x.comp (dot.glsl). kGlu:
// y[t][r] = act(x[t] . weight[r] + bias[r]) * (x[t] . up[r] + its bias[r]), for two weights of one
// layout. kGateMade: y[t][r] = act(gate[t][r]) * (x[t] . weight[r] + bias[r]). kEncodes: also
// writes y as codes (codes.glsl). Several workgroups compute a block of 32 outputs. The last
// workgroup to finish encodes the block; no workgroup waits. ROUTE: y is scores of experts, and the
// last workgroup to finish chooses experts (route.glsl); each computes kOut scores of one block of
// rows.
//
// z  kPlain: -.  kHeads: a matrix of the stack and its columns of x and y.  kExperts: a slot (row
//    of the step * used + k), which selects the expert's matrix.  kSum: a row of the step; its
//    slots' products are added in the order of the experts' ids.
#version 460
#include "head.glsl"
#include "glu.glsl"
#include "types.glsl"
#include "last.glsl"

layout(constant_id = 1) const uint kRows = 1;
layout(constant_id = 2) const uint kOut = 2;
layout(constant_id = 3) const uint kKind = 0;
// Rows of x are aligned to 16 bytes and consist of whole units (always true with DOT).
layout(constant_id = 4) const bool kWhole = true;
layout(constant_id = 5) const bool kMayStage = true;
layout(constant_id = 6) const uint kGlu = 0;  // for kPlain and kExperts: 1 + the activation, 0:
                                              // none
layout(constant_id = 7) const bool kGateMade = false;
layout(constant_id = 8) const bool kEncodes = false;  // n is a multiple of 32
#include "codes.glsl"
layout(constant_id = 9) const uint kMostExperts = 1024;  // ROUTE: of a row

const uint kSums = kRows * kOut;
const uint kPlain = 0, kHeads = 1, kExperts = 2, kSum = 3;

// Destination of the codes of y, followed by a Counter for each block of kRows rows by 32 outputs.
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Encoder {
    uint64_t codes, scales;
};
const uint kEncoderBytes = 16;
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer SharedFloats {
    float at[];
};
#ifdef ROUTE
const bool kRoutes = true, kSparse = false, kSoftplus = false, kByToken = false;
#include "route.glsl"
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Router {
    Routing routing;  // followed by a Counter
};
const uint kRoutingBytes = 80;
#endif

layout(push_constant, scalar) uniform Args {
    uint64_t plane[4];
    uint64_t x, y, bias;          // bias: may be 0
    // For experts; base: may be 0. kGlu: weights is the distance from this weight to `up`, base its
    // bias; kGateMade: weights is the gate's rows.
    uint64_t ids, weights, base;
    uint64_t ending;              // kEncodes: an Encoder; ROUTE: a Router
    uint row_units[4];            // per plane: in 16 bytes
    uint n, cols, rows;           // of a matrix; rows of x
    uint held;       // experts held: the first, and the count << 16
    uint slots;  // experts per row; and << 16: x has a row per row of the step instead of per slot
    uint scales_at;  // DOT: distance from the codes of x to its scales, in 256 bytes
} a;
int FirstExpert() { return int(a.held & 0xffff); }
int Experts() { return int(a.held >> 16); }
uint Used() { return a.slots & 0xffff; }
bool IsByToken() { return a.slots >> 16 != 0; }

const uint kMostSubgroups = gl_WorkGroupSize.x / 4;
shared float partial[kMostSubgroups * kSums];

uint64_t up_offset = 0;  // offset of the weight being multiplied

WeightRow RowOf(uint row) {
    WeightRow at;
    [[unroll]] for (int p = 0; p < 4; ++p) {
        at.plane[p] = a.plane[p] + up_offset + uint64_t(row) * a.row_units[p] * 16;
    }
    return at;
}

#ifdef DOT
#include "matvec_dot.glsl"
#else
#include "matvec_float.glsl"
#endif

// Adds the invocations' sums; then invocation i < kSums returns the total of sums[i].
float Total(uint lane, float sums[kSums]) {
    [[unroll]] for (uint i = 0; i < kSums; ++i) {
        precise float sum = subgroupAdd(sums[i]);
        if (subgroupElect()) partial[gl_SubgroupID * kSums + i] = sum;
    }
    barrier();
    precise float total = 0;
    if (lane < kSums) {
        for (uint s = 0; s < gl_NumSubgroups; ++s) {
            total = total + partial[s * kSums + lane];
        }
    }
    barrier();
    return total;
}

// The next slot of `row` in the order of (expert, slot), after `last`, which is then set to the
// number of that pair; Used(): none. (A row may have an expert twice.)
uint NextSlot(uint row, inout int last) {
    int best = 0x7fffffff;
    for (uint k = 0; k < Used(); ++k) {
        const int id = Ints(a.ids).at[row * Used() + k] - FirstExpert();
        const int pair = id * int(Used()) + int(k);
        if (id >= 0 && id < Experts() && pair > last && pair < best) best = pair;
    }
    last = best;
    return best == 0x7fffffff ? Used() : uint(best) % Used();
}

// base + the sum over the experts of row z of weight * (product + bias).
void SumExperts(uint first, uint lane) {
    const uint row = gl_WorkGroupID.z;
    precise float biases = 0;
    float sums[kSums];
    [[unroll]] for (uint i = 0; i < kSums; ++i) sums[i] = 0;
    int last = -1;
    for (uint k = NextSlot(row, last); k < Used(); k = NextSlot(row, last)) {
        const uint slot = row * Used() + k;
        const float weight = Floats(a.weights).at[slot];
        const uint matrix = uint(last) / Used() * a.n;
        Multiply(a.x + uint64_t(slot) * a.cols * X_BYTES, 0, 1, matrix + first, matrix + a.n,
                 weight, lane, sums);
        if (a.bias != 0 && lane < kOut && first + lane < a.n) {
            biases = fma(weight, Floats(a.bias).at[matrix + first + lane], biases);
        }
    }
    const float total = Total(lane, sums);
    if (lane >= kOut || first + lane >= a.n) return;
    const uint64_t at = uint64_t(row) * a.n + first + lane;
    precise float sum = total + biases;
    if (a.base != 0) sum = sum + Floats(a.base + at * 4).at[0];
    Floats(a.y + at * 4).at[0] = sum;
}

// Called after this workgroup has written kOut outputs of a block, from `first` on, for `count`
// rows from y on.
void EncodeBlock(uint64_t y, uint y_stride, uint count, uint first, uint lane) {
    const uint unit = kKind == kExperts ? gl_WorkGroupID.z : gl_WorkGroupID.y;
    const uint block = unit * (a.n / 32) + first / 32;
    if (!ComesLast(a.ending + kEncoderBytes + block * 4, 32 / kOut, lane)) return;
    const uint o = first / 32 * 32 + lane % kBlockLanes * 4;
    Encoder encoder = Encoder(a.ending);
    for (uint begin = 0; begin < count; begin += gl_WorkGroupSize.x / kBlockLanes) {
        const uint t = begin + lane / kBlockLanes;
        const bool inside = t < count;
        vec4 four = vec4(0);
        if (inside) {
            SharedFloats row = SharedFloats(y + uint64_t(t) * y_stride * 4);
            four = vec4(row.at[o], row.at[o + 1], row.at[o + 2], row.at[o + 3]);
        }
        const uint at = uint((y - a.y) / 4) + t * y_stride + o;
        Encode(encoder.codes, encoder.scales, lane, at / 4, four, inside);
    }
}

#ifdef ROUTE
void RouteRows(uint lane) {
    if (!ComesLast(a.ending + kRoutingBytes, gl_NumWorkGroups.x, lane)) return;
    routing = Router(a.ending).routing;
    for (uint row = 0; row < a.rows; ++row) RouteRow(a.y, row);
}
#endif

void main() {
    const uint lane = gl_LocalInvocationIndex;
    PrepareType(lane, gl_WorkGroupSize.x);
    const uint z = gl_WorkGroupID.z;
    uint matrix = 0, y_stride = a.n, begin = gl_WorkGroupID.y * kRows, rows = a.rows;
    uint64_t x = a.x, y = a.y, x_stride = uint64_t(a.cols) * X_BYTES;
    if (kKind == kHeads) {
        matrix = z;
        x += z * x_stride;
        x_stride *= gl_NumWorkGroups.z;
        y += uint64_t(z) * a.n * 4;
        y_stride *= gl_NumWorkGroups.z;
    } else if (kKind == kExperts) {
        const int expert = Ints(a.ids).at[z] - FirstExpert();
        if (expert < 0 || expert >= Experts()) return;
        matrix = uint(expert);
        x += uint64_t(IsByToken() ? z / Used() : z) * x_stride;
        y += uint64_t(z) * a.n * 4;
        rows = 1;
    }
    x += begin * x_stride;
    y += uint64_t(begin) * y_stride * 4;
    rows -= begin;
    for (uint first = gl_WorkGroupID.x * kOut; first < a.n; first += gl_NumWorkGroups.x * kOut) {
        if (kKind == kSum) {
            SumExperts(first, lane);
            continue;
        }
        const uint head = matrix * a.n;
        const uint t = lane / kOut, o = first + lane % kOut;
        const bool mine = t < min(rows, kRows) && o < a.n;
        float products[2];
        for (uint part = 0; part < (kGlu == 0 || kGateMade ? 1 : 2); ++part) {
            if (kGlu != 0) up_offset = part * a.weights;
            float sums[kSums];
            Multiply(x, x_stride, rows, head + first, head + a.n, 1, lane, sums);
            precise float sum = Total(lane, sums);
            const uint64_t bias = part == 0 ? a.bias : a.base;
            if (mine && bias != 0) sum = sum + Floats(bias).at[head + o];
            products[part] = sum;
        }
        if (mine) {
            const uint at = t * y_stride + o;
            float value = products[0];
            if (kGlu != 0) {
                const float gate = kGateMade ? Floats(a.weights + (y - a.y)).at[at] : products[0];
                value = Glu(kGlu - 1, gate, products[kGateMade ? 0 : 1]);
            }
#ifdef ROUTE
            SharedFloats(y).at[at] = value;
#else
            if (kEncodes) {
                SharedFloats(y).at[at] = value;
            } else {
                Floats(y).at[at] = value;
            }
#endif
        }
        if (kEncodes) EncodeBlock(y, y_stride, min(rows, kRows), first, lane);
    }
#ifdef ROUTE
    RouteRows(lane);
#endif
}
