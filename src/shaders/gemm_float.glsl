// Part of gemm.comp: products of float32. An invocation computes groups of four rows and four
// columns of the tile; kLanesN invocations span its columns.
layout(constant_id = 10) const uint kLanesN = 16;

const uint kDeep = 16;
const uint kLanesM = kSize / kLanesN;
const uint kFoursM = kTileM / (4 * kLanesM), kFoursN = kTileN / (4 * kLanesN);
// A row of the array is a term; its stride is chosen to avoid bank conflicts.
const uint kStrideA = kTileM / 4 + 1, kStrideB = kTileN / 4 + 1;
shared vec4 tile_a[kDeep * kStrideA];
shared vec4 tile_b[kDeep * kStrideB];

// An invocation loads at most one group of eight elements of a tile.
const uint kEightsA = (kTurnA ? kTileM : kDeep) / 8, kEightsB = (kTurnB ? kTileN : kDeep) / 8;
const uint kJobsA = kTileM * kDeep / 8, kJobsB = kTileN * kDeep / 8;

void PlaceA(uint line, uint eight, Eight x) {
    if (kTurnA) {
        tile_a[line * kStrideA + 2 * eight] = x.low;
        tile_a[line * kStrideA + 2 * eight + 1] = x.high;
        return;
    }
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        tile_a[(8 * eight + i) * kStrideA + line / 4][line % 4] = x.low[i];
        tile_a[(8 * eight + 4 + i) * kStrideA + line / 4][line % 4] = x.high[i];
    }
}
void PlaceB(uint line, uint eight, Eight x) {
    if (kTurnB) {
        tile_b[line * kStrideB + 2 * eight] = x.low;
        tile_b[line * kStrideB + 2 * eight + 1] = x.high;
        return;
    }
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        tile_b[(8 * eight + i) * kStrideB + line / 4][line % 4] = x.low[i];
        tile_b[(8 * eight + 4 + i) * kStrideB + line / 4][line % 4] = x.high[i];
    }
}

// The next terms are loaded while the current ones are multiplied.
void Multiply(uint lane) {
    const uint across = lane % kLanesN, down = lane / kLanesN;
    vec4 sums[kFoursM * 4 * kFoursN];
    [[unroll]] for (uint i = 0; i < kFoursM * 4 * kFoursN; ++i) sums[i] = vec4(0);
    for (uint deep = begin_k;; deep += kDeep) {
        Eight a, b;
        if (lane < kJobsA) a = FetchA(lane / kEightsA, lane % kEightsA, deep);
        if (lane < kJobsB) b = FetchB(lane / kEightsB, lane % kEightsB, deep);
        for (uint d = 0; deep != begin_k && d < kDeep; ++d) {
            vec4 y[kFoursN];
            [[unroll]] for (uint j = 0; j < kFoursN; ++j) {
                y[j] = tile_b[d * kStrideB + across + j * kLanesN];
            }
            [[unroll]] for (uint i = 0; i < kFoursM; ++i) {
                const vec4 x = tile_a[d * kStrideA + down + i * kLanesM];
                [[unroll]] for (uint r = 0; r < 4; ++r) {
                    [[unroll]] for (uint j = 0; j < kFoursN; ++j) {
                        const uint at = (4 * i + r) * kFoursN + j;
                        sums[at] = fma(vec4(x[r]), y[j], sums[at]);
                    }
                }
            }
        }
        if (deep >= end_k) break;
        barrier();
        if (lane < kJobsA) PlaceA(lane / kEightsA, lane % kEightsA, a);
        if (lane < kJobsB) PlaceB(lane / kEightsB, lane % kEightsB, b);
        barrier();
    }
    [[unroll]] for (uint i = 0; i < 4 * kFoursM; ++i) {
        [[unroll]] for (uint j = 0; j < kFoursN; ++j) {
            StoreSums(4 * (down + i / 4 * kLanesM) + i % 4, 4 * (across + j * kLanesN),
                      sums[i * kFoursN + j]);
        }
    }
}
