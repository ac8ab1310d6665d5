// Arguments of the inference kernels (kernels/kernels.h has the table of kernels). Row kernels that
// inference and training share have their arguments in dense/rows.h; arguments of the other
// training kernels are in the other headers of dense/.
//
// Every kernel takes (args, part, parts). A team of `parts` threads calls the kernel with the same
// args; the thread that passes `part` does that part of the work. Different parts never write the
// same bytes. With parts == 1 the kernel does all the work.
// A row's result does not depend on the other rows, on `parts`, or on the number of rows (batch
// invariance): a token alone gives the same bits as the same token among many.
//
// Matrices are row-major. Strides are in elements. `rows` is the number of tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace weft::kernels {

// ---- Weight matrices ---------------------------------------------------------------------------

// A weight [rows, cols] (output columns, input columns) in the packed form of one kernel table.
// Rows are padded to whole strips. Kernels::packed_bytes returns the size of the packed weight.
struct PackedMatrix {
    DType dtype = DType::kF32;
    int64_t rows = 0;
    int64_t cols = 0;
    std::byte* data = nullptr;  // 64-byte aligned
};

// Rows per strip. Packing and matmul are divided among threads at multiples of this number.
inline constexpr int64_t kStripRows = 16;

// The half-open range [begin, end).
struct Range {
    int64_t begin, end;
};

// The format of activations that products with weights of one type read
// (Kernels::activation_format). kInt8 and kBF16 are prepared forms: quantize_activations computes
// them from float32.
//   kNone  float32
//   kInt8  for quantized weights: int8 in blocks of 32 columns, each with a float scale and the
//          block sums that zero points need
//   kBF16  bfloat16, rounded to nearest even, for BF16 weights if the CPU multiplies BF16
//          (denormals become zeros)
// The kernel table chooses the exact layout; quantized_bytes(cols) is the stride of a row in kInt8
// and kBF16.
enum class ActivationFormat { kNone, kInt8, kBF16 };

struct QuantizeActivationsArgs {
    const float* x = nullptr;  // [rows, cols]
    int64_t x_stride = 0;
    int64_t rows = 0;
    int64_t cols = 0;          // kInt8: a multiple of 32
    std::byte* out = nullptr;  // [rows, quantized_bytes(cols)], 64-byte aligned
    ActivationFormat as = ActivationFormat::kInt8;
};

struct MatMulArgs {
    PackedMatrix weight;
    const float* x = nullptr;  // [rows, cols]: used without a prepared form
    int64_t x_stride = 0;
    const std::byte* quantized = nullptr;  // used if the weight's type needs a prepared form
    int64_t rows = 0;
    const float* bias = nullptr;  // [weight.rows] or null
    float* y = nullptr;           // [rows, weight.rows]
    // Not 0: the columns form segments of this many columns. The float32 sum of each segment is
    // added in float64, so that the result hardly depends on how the columns are divided over
    // ranks. It is a multiple of 32 for quantized and BF16 weights; for types with blocks of 256
    // columns, it is 32, 64, 128 or a multiple of 256. The reference kernel does not round
    // activations, but also computes a float32 sum per segment.
    int64_t segment_cols = 0;
    double* wide = nullptr;  // not null: used instead of y, for the sums before they are rounded to
                             // float32
    int64_t y_stride = 0;    // stride of y or wide
    // x is zero outside of these columns. If both bounds are 0, x may be nonzero in all columns.
    // Kernels may skip segments in which x is zero, because they change no bit of a sum.
    Range x_used{0, 0};

    bool EndsInBlocks(int64_t block) const { return segment_cols != 0 && segment_cols < block; }
    // The units of 32 columns that x_used covers, extended to whole segments.
    Range UnitsUsed() const {
        if (x_used.end == 0) return {0, weight.cols / 32};
        const int64_t segment = segment_cols / 32;
        const int64_t end = (x_used.end + segment_cols - 1) / segment_cols * segment;
        return {x_used.begin / segment_cols * segment, std::min(end, weight.cols / 32)};
    }
};

// ---- Everything else ---------------------------------------------------------------------------

// The sum of squares of each row of x [rows, cols], computed in double. It is written to y [rows]
// or to wide [rows]; the other pointer is null.
struct SumSquaresArgs {
    const float* x = nullptr;
    int64_t x_stride = 0, rows = 0, cols = 0;
    float* y = nullptr;
    double* wide = nullptr;
    int64_t y_stride = 0;
};

// Table of magnitude * cos(angle) and magnitude * sin(angle), where angle = position *
// inverse_frequency[i] is computed in double. The table is computed once per step and used by all
// layers, for q and for k.
struct RopeTableArgs {
    const int32_t* positions = nullptr;        // [rows]
    const float* inverse_frequency = nullptr;  // [rotary_dim / 2]
    int64_t rows = 0, rotary_dim = 0;
    float* out = nullptr;  // [rows, rotary_dim]: a row holds the cosines, then the sines
    float magnitude = 1;
    int64_t behind = 0;  // the position used is max(0, position - behind)
};

// Number of slots of a K cache that are interleaved. page_tokens is a multiple of it.
inline constexpr int64_t kSlotGroup = 64;

// One layer's K or V cache: pages of `page_tokens` positions. A page holds
// [kv_heads][page_tokens] rows of head_dim elements of dtype (a float type, or a block type of
// cache_blocks.h). If positions share a row, page_tokens counts rows.
// In a V cache, rows are stored unchanged. In a K cache, the rows of each kSlotGroup slots are
// transposed, so that a dim of consecutive keys can be loaded as a vector, and the keys are read in
// the order of memory. Floats: [head_dim][64]. Blocks: for each block of 32 dims, each f16 number
// of a block as [64] numbers, then each byte of a block as [64] bytes.
struct KvCache {
    DType dtype = DType::kF16;
    std::byte* data = nullptr;
    int64_t kv_heads = 0, page_tokens = 0, head_dim = 0;
    int64_t RowStride() const { return RowBytes(dtype, head_dim); }
    int64_t PageStride() const { return RowStride() * page_tokens * kv_heads; }
    // V: the row of `slot`. K: the start of the slot group that begins with `slot`.
    std::byte* Row(int64_t page, int64_t head, int64_t slot) const {
        return data + page * PageStride() + (head * page_tokens + slot) * RowStride();
    }
};

// The rows of a step that belong to one sequence.
struct Sequence {
    int32_t row_begin = 0;  // first row of the step
    int32_t row_count = 0;
    int32_t position = 0;            // position of the first row, which is the number of tokens
                                     // already in the cache
    std::span<const int32_t> pages;  // page p holds positions [p * page_tokens, ...)
};

// Writes the rows of k and v [rows, kv_heads * head_dim] into the caches at their positions. The
// two caches may have different head_dim.
struct KvWriteArgs {
    std::span<const Sequence> sequences;
    const float* k = nullptr;
    const float* v = nullptr;
    int64_t k_stride = 0, v_stride = 0;
    KvCache k_cache, v_cache;
};

// Attention of q [rows, heads * head_dim] over the cache (the rows' own k and v are already
// in it). Query head h of this rank is head `first_head + h` of the model; it reads KV head
// (first_head + h) / group - first_kv_head of the cache. Softmax in float32, online (Milakov and
// Gimelshein 2018; Dao et al. 2022).
//   window    not 0: a query sees its own key and the window - 1 keys before it; tiles of keys that
//             no query of a block sees are not read
//   chunk     not 0: a query sees no key before the last multiple of `chunk` (Llama 4, 2025)
//   ahead     false: a query sees no key after its own (causal). true: a query sees all keys up to
//             its sequence's last row in this step; within a window, the window - 1 keys after it.
//             Not with slopes
//   soft_cap  not 0: a scaled score s becomes soft_cap * tanh(s / soft_cap) (Gemma 2, 2024)
//   sinks     not null: [heads], one more score per head in the softmax, whose value is zero
//             (gpt-oss, 2025)
//   slopes    not null: [heads], a score also has the head's slope times (the key's position - the
//             query's) (ALiBi: Press et al. 2022); without a soft cap
struct AttentionArgs {
    std::span<const Sequence> sequences;
    const float* q = nullptr;
    int64_t q_stride = 0;
    KvCache k_cache, v_cache;
    int64_t heads = 0, first_head = 0, group = 1, first_kv_head = 0;
    float scale = 1;
    float* scratch = nullptr;    // [parts, attention_scratch] floats
    int64_t scratch_floats = 0;  // floats per part
    float* out = nullptr;        // [rows, heads * head_dim of the values]
    int64_t out_stride = 0;
    int64_t window = 0;
    float soft_cap = 0;
    const float* sinks = nullptr;
    const float* slopes = nullptr;
    int64_t chunk = 0;
    bool ahead = false;
    // Position of the first key that the query at `position` sees.
    int64_t FirstKey(int64_t position) const {
        if (chunk != 0) return position / chunk * chunk;
        return window == 0 || position < window ? 0 : position - window + 1;
    }
    // Position of the last key that the query of row `index` of `sequence` sees.
    int64_t LastKey(const Sequence& sequence, int64_t index) const {
        const int64_t position = sequence.position + index;
        if (!ahead) return position;
        const int64_t end = int64_t{sequence.position} + sequence.row_count - 1;
        return window == 0 ? end : std::min(end, position + window - 1);
    }
};

// y = cap * tanh(x / cap).
struct SoftCapArgs {
    const float* x = nullptr;
    float* y = nullptr;  // may be x
    int64_t rows = 0, cols = 0;
    float cap = 1;
};

// Row i of the result is row `tokens[i] - first_row` of a packed matrix, as floats. It is zeros if
// the matrix lacks that row, because another rank holds it.
struct EmbeddingArgs {
    PackedMatrix weight;  // [rows, cols]
    int64_t first_row = 0;
    const int32_t* tokens = nullptr;
    int64_t count = 0;
    float* y = nullptr;
    int64_t y_stride = 0;
};

template <typename Args>
using Kernel = void (*)(const Args& args, int part, int parts);

// The items that part `part` of `parts` computes, out of `count` items. Divides them at multiples
// of `grain`. Kernels divide work in this way.
constexpr Range Share(int64_t count, int64_t grain, int part, int parts) {
    const int64_t units = (count + grain - 1) / grain;
    const int64_t begin = units * part / parts * grain;
    const int64_t end = units * (part + 1) / parts * grain;
    return {begin < count ? begin : count, end < count ? end : count};
}

}  // namespace weft::kernels
