// Part of matvec.comp: products of floats.
#define X_BYTES 4

// Units of one row of x, one per invocation. The units are loaded contiguously, and read 16 bytes
// at a time with a stride without bank conflicts. Used only for several rows: a single row is read
// once for several rows of the weight. Changes no bits.
const bool kStaged = kMayStage && kRows > 1;
shared vec4 staged[kStaged ? gl_WorkGroupSize.x * (QUADS + 1) : 1];

// Columns of a row of x; zeros beyond the last.
vec4 Load(uint64_t x, uint column) {
    if (kWhole) return Floats4(x).at[column >> 2];
    vec4 four = vec4(0);
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        if (column + i < a.cols) four[i] = Floats(x).at[column + i];
    }
    return four;
}

void Stage(uint64_t x, uint begin, uint lane) {
    barrier();
    [[unroll]] for (uint i = 0; i < QUADS; ++i) {
        const uint four = i * gl_WorkGroupSize.x + lane, column = begin * UNIT + 4 * four;
        staged[four + four / QUADS] = column < a.cols ? Load(x, column) : vec4(0);
    }
    barrier();
}

// sums += factor * (rows of x . rows of the weight), over this invocation's units.
void Multiply(uint64_t x, uint64_t x_stride, uint rows, uint first, uint n, float factor,
              uint lane, inout float sums[kSums]) {
    precise float own[kSums];
    [[unroll]] for (uint i = 0; i < kSums; ++i) own[i] = 0;
    WeightRow at[kOut];
    [[unroll]] for (uint o = 0; o < kOut; ++o) at[o] = RowOf(min(first + o, n - 1));
    const uint units = (a.cols + UNIT - 1) / UNIT;
    for (uint begin = 0; begin < units; begin += gl_WorkGroupSize.x) {
        const uint unit = begin + lane;
        vec4 w[kOut][QUADS];
        if (unit < units) {
            [[unroll]] for (uint o = 0; o < kOut; ++o) Decode(at[o], unit, w[o]);
        }
        [[unroll]] for (uint t = 0; t < kRows; ++t) {
            const uint64_t row = x + min(t, rows - 1) * x_stride;
            if (kStaged) Stage(row, begin, lane);
            if (unit < units) {
                vec4 columns[QUADS];
                [[unroll]] for (uint j = 0; j < QUADS; ++j) {
                    columns[j] = kStaged ? staged[lane * (QUADS + 1) + j]
                                         : Load(row, unit * UNIT + 4 * j);
                }
                [[unroll]] for (uint o = 0; o < kOut; ++o) {
                    precise vec4 four = w[o][0] * columns[0];
                    [[unroll]] for (uint j = 1; j < QUADS; ++j) {
                        four = fma(w[o][j], columns[j], four);
                    }
                    precise float pair = four.x + four.y;
                    precise float other = four.z + four.w;
                    precise float all = pair + other;
                    own[t * kOut + o] = own[t * kOut + o] + all;
                }
            }
        }
    }
    [[unroll]] for (uint i = 0; i < kSums; ++i) {
        precise float sum = kKind == kSum ? fma(factor, own[i], sums[i]) : own[i];
        sums[i] = sum;
    }
}
