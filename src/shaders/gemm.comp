//: gemm
//: gemm_matrix -DMATRIX : coopmat
//: gemm_matrix_emulated -DMATRIX -DEMULATED
// Matrix products of training (backend/gpu/lower/gemm.h): C[m,n] = A . B or C += A . B, with
// float32, bfloat16 or float16 operands. A workgroup computes kTileM x kTileN elements of C, and
// loads kDeep terms of each sum to shared memory at a time. A sum is one chain over the terms in
// order.
//
// kForm  the layouts of A and B: NT A[m,k], B[n,k]; NN A[m,k], B[k,n]; TN A[k,m], B[k,n]
// y      rows of C: kTileM of them
// z      terms [z * split, (z + 1) * split); C is then one of several partial sums
//
// kGroups: products with experts, with a plan of expert_order.comp.
//     kRows   y is a block of the plan: rows of A and C are its slots, B is its expert's matrix.
//             Slots of experts that are not held become zeros. B may be a piece of the stack; blocks
//             of other pieces do nothing.
//     kTerms  z is an expert; the terms are its slots, C is its matrix
#version 460
#include "gemm_elements.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTileM = 64;
layout(constant_id = 2) const uint kTileN = 64;
layout(constant_id = 3) const uint kForm = 0;
layout(constant_id = 4) const uint kTypeA = 0;
layout(constant_id = 5) const uint kTypeB = 0;
layout(constant_id = 6) const uint kTypeC = 0;
layout(constant_id = 7) const uint kAligned = 0;  // bits: rows of A, B, C are aligned to 16 bytes
layout(constant_id = 8) const uint kGroups = 0;
layout(constant_id = 9) const bool kRounds = false;  // round operands to bfloat16

const uint kNT = 0, kNN = 1, kTN = 2;
const uint kRows = 1, kTerms = 2;
const bool kTurnA = kForm == kTN, kTurnB = kForm != kNT;  // whether a row in memory is one term
const bool kAlignedA = (kAligned & 1) != 0, kAlignedB = (kAligned & 2) != 0;
const bool kAlignedC = (kAligned & 4) != 0;
const uint kSize = gl_WorkGroupSize.x;

layout(push_constant, scalar) uniform Args {
    uint64_t a, b, c;
    uint64_t a_peaks, b_peaks;  // MATRIX: from gemm_peaks.comp
    uint64_t plan, factors;     // factors: factors of the slots, for kTerms, or 0
    uint a_stride, b_stride, c_stride;
    uint m, n, k;
    uint split, accumulate;
    uint matrix_rows;           // per matrix of the stack: B for kRows, C for kTerms
    uint a_used, b_used;        // slots that share a row of A or B
    uint groups;                // groups of peaks of A; groups of peaks of B << 16
    uint a_count, b_count;        // peaks per group
    uint first_matrix, matrices;  // kRows: the matrices of the stack that B has
} g;

// The part of C that the workgroup computes. matrix: of B (kRows), or of C (kTerms).
uint first_m, first_n, rows, matrix, begin_k, end_k, slots_at;
shared uint slots[kTileM];

uint SlotAt(uint i) { return uint(Ints(g.plan).at[slots_at + i]); }

// The row in memory of row `i` of the tile of A, or (TermOfA) of term `term`.
uint RowOfA(uint i) { return kGroups == kRows ? slots[i] / g.a_used : first_m + i; }
uint TermOfA(uint term) { return kGroups == kTerms ? SlotAt(term) / g.a_used : term; }
uint RowOfB(uint j) { return (kGroups == kRows ? matrix * g.matrix_rows : 0) + first_n + j; }
uint TermOfB(uint term) {
    if (kGroups == kTerms) return SlotAt(term) / g.b_used;
    return (kGroups == kRows ? matrix * g.matrix_rows : 0) + term;
}

uint64_t LineOfA(uint row) { return g.a + uint64_t(row) * g.a_stride * BytesOf(kTypeA); }
uint64_t LineOfB(uint row) { return g.b + uint64_t(row) * g.b_stride * BytesOf(kTypeB); }

vec4 Prepared(vec4 x, float factor) {
    if (kGroups == kTerms) x *= factor;
    if (!kRounds) return x;
    return WidenFour(kBF16, NarrowFour(kBF16, x));
}

// Eight elements of row `line` of a tile, from element 8 * eight on. The tile has its operand's
// layout, and its terms begin at `deep`.
Eight FetchA(uint line, uint eight, uint deep) {
    Eight x = Eight(vec4(0), vec4(0));
    float factor = 1;
    if (kTurnA) {
        const uint term = deep + line;
        if (term >= end_k) return x;
        x = LoadEight(kTypeA, kAlignedA, LineOfA(TermOfA(term)), first_m + 8 * eight, g.m);
        if (kGroups == kTerms && g.factors != 0) factor = Floats(g.factors).at[SlotAt(term)];
    } else {
        if (line >= rows) return x;
        x = LoadEight(kTypeA, kAlignedA, LineOfA(RowOfA(line)), deep + 8 * eight, end_k);
    }
    return Eight(Prepared(x.low, factor), Prepared(x.high, factor));
}
Eight FetchB(uint line, uint eight, uint deep) {
    Eight x = Eight(vec4(0), vec4(0));
    if (kTurnB) {
        const uint term = deep + line;
        if (term >= end_k) return x;
        x = LoadEight(kTypeB, kAlignedB, LineOfB(TermOfB(term)), first_n + 8 * eight, g.n);
    } else {
        if (first_n + line >= g.n) return x;
        x = LoadEight(kTypeB, kAlignedB, LineOfB(RowOfB(line)), deep + 8 * eight, end_k);
    }
    return Eight(Prepared(x.low, 1), Prepared(x.high, 1));
}

// Stores four elements of row `i` of the tile of C, from its column `column` on.
void StoreSums(uint i, uint column, vec4 sums) {
    if (i >= rows) return;
    uint row = first_m + i;
    if (kGroups == kRows) row = slots[i];
    if (kGroups == kTerms) row += matrix * g.matrix_rows;
    if (kGroups == 0) row += gl_WorkGroupID.z * g.m;
    const uint64_t line = g.c + uint64_t(row) * g.c_stride * BytesOf(kTypeC);
    StoreFour(kTypeC, kAlignedC, g.accumulate != 0, line, first_n + column, g.n, sums);
}

#ifdef MATRIX
#include "gemm_matrix.glsl"
#else
#include "gemm_float.glsl"
#endif

void main() {
    const uint lane = gl_LocalInvocationIndex;
    first_n = gl_WorkGroupID.x * kTileN;
    first_m = gl_WorkGroupID.y * kTileM;
    matrix = 0;
    begin_k = 0;
    end_k = g.k;
    rows = min(g.m - first_m, kTileM);
    if (kGroups == kRows) {
        const uint block = 4 + 3 * gl_WorkGroupID.y;
        if (int(gl_WorkGroupID.y) >= Ints(g.plan).at[0]) return;
        matrix = uint(Ints(g.plan).at[block]);
        const bool held = matrix != uint(Ints(g.plan).at[3]);
        matrix = held ? matrix - g.first_matrix : 0;
        if (held ? matrix >= g.matrices : g.first_matrix != 0) return;
        rows = uint(Ints(g.plan).at[block + 2]);
        slots_at = uint(Ints(g.plan).at[1]) + uint(Ints(g.plan).at[block + 1]);
        for (uint row = lane; row < kTileM; row += kSize) slots[row] = SlotAt(min(row, rows - 1));
        if (!held) end_k = 0;
        barrier();
    } else if (kGroups == kTerms) {
        matrix = gl_WorkGroupID.z;
        slots_at = uint(Ints(g.plan).at[1]);
        const uint begins = uint(Ints(g.plan).at[2]) + matrix;
        begin_k = uint(Ints(g.plan).at[begins]);
        end_k = uint(Ints(g.plan).at[begins + 1]);
        if (begin_k == end_k && g.accumulate != 0) return;
    } else {
        begin_k = gl_WorkGroupID.z * g.split;
        end_k = min(g.k, begin_k + g.split);
    }
    Multiply(lane);
}
