// Kernels of hyper-connections (program/streams.h has the formulas).
//
// As in args.h, a row's bits depend neither on the other rows nor on the number of parts.
#pragma once

#include <cstdint>

#include "kernels/args.h"

namespace weft::kernels {

// Number of columns in a row of weights that mix this many streams.
constexpr int64_t StreamWeightColumns(int64_t streams) {
    return streams * (2 + streams);
}

struct StreamWeightsArgs {
    const float* logits = nullptr;  // [rows, cols]
    const float* base = nullptr;    // [cols]
    const float* scale = nullptr;   // [3]; [2] where cols == 2 * streams, [1] where == streams
    int64_t rows = 0;
    int64_t cols = 0;  // StreamWeightColumns(streams); 2 * streams: without a matrix; `streams`:
                       // only merge weights
    int64_t streams = 1, iterations = 1;
    float eps = 0, magnitude = 2;
    float* y = nullptr;  // [rows, cols]
};
void StreamWeights(const StreamWeightsArgs& args, int part, int parts);

struct MergeStreamsArgs {
    const float* x = nullptr;        // [rows, streams * cols]
    const float* weights = nullptr;  // [rows, weight_cols]
    int64_t rows = 0, cols = 0, streams = 1, weight_cols = 0;
    float* y = nullptr;  // [rows, cols]
};
void MergeStreams(const MergeStreamsArgs& args, int part, int parts);

struct MixStreamsArgs {
    const float* x = nullptr;        // [rows, streams * cols]; null: y has copies of update
    const float* weights = nullptr;  // [rows, weight_cols]
    const float* update = nullptr;   // [rows, cols]
    int64_t rows = 0, cols = 0, streams = 1;
    int64_t weight_cols = 0;  // StreamWeightColumns(streams), or 2 * streams: without a matrix
    float* y = nullptr;       // [rows, streams * cols]; not x
};
void MixStreams(const MixStreamsArgs& args, int part, int parts);

// ---- Gemma 3n -----------------------------------------------------------------------------------

struct AltUpWeightsArgs {
    const float* coefs = nullptr;  // [rows, streams * streams]; corrects: [rows, streams]
    int64_t rows = 0, cols = 0, streams = 1;
    bool corrects = false;
    float* y = nullptr;  // [rows, cols], cols = StreamWeightColumns(streams)
};
void AltUpWeights(const AltUpWeightsArgs& args, int part, int parts);

struct MatchStreamsArgs {
    const float* x = nullptr;       // [rows, cols]
    const float* target = nullptr;  // [rows, target_cols]
    int64_t rows = 0, cols = 0, target_cols = 1;
    float* y = nullptr;  // [rows, cols]
};
void MatchStreams(const MatchStreamsArgs& args, int part, int parts);

struct ScaleColumnsArgs {
    const float* x = nullptr;       // [rows, x_cols]
    const float* weight = nullptr;  // [cols]
    int64_t rows = 0, cols = 0, x_cols = 0;
    float* y = nullptr;  // [rows, cols]
};
void ScaleColumns(const ScaleColumnsArgs& args, int part, int parts);

// Sums in double, written to y or to wide; the other pointer is null.
struct RowMomentsArgs {
    const float* x = nullptr;  // [rows, x_cols]
    int64_t rows = 0, cols = 2, x_cols = 0;
    float* y = nullptr;  // [rows, 2]
    double* wide = nullptr;
};
void RowMoments(const RowMomentsArgs& args, int part, int parts);

struct SparsifyArgs {
    const float* x = nullptr;        // [rows, cols]
    const float* moments = nullptr;  // [rows, 2]
    int64_t rows = 0, cols = 0, whole = 1;
    float deviations = 0;
    float* y = nullptr;  // [rows, cols]
};
void Sparsify(const SparsifyArgs& args, int part, int parts);

// ---- LongCat-Flash ------------------------------------------------------------------------------

// y = x times the sum of the row's weights of the experts from `first` on.
struct IdentityExpertsArgs {
    const float* x = nullptr;  // [rows, cols]
    const int32_t* ids = nullptr;
    const float* weights = nullptr;  // [rows, used]
    int64_t rows = 0, cols = 0, used = 0, first = 0;
    float* y = nullptr;  // [rows, cols]
};
void IdentityExperts(const IdentityExpertsArgs& args, int part, int parts);

}  // namespace weft::kernels
