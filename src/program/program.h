// The Program: a flat list of ops over values that one rank computes in one step.
//
// model/ builds it once per rank, a backend executes it, and walks read it: shape check, liveness
// plan, print, cost, differentiate. Collectives are ordinary ops.
//
// Values. A value has a dtype, a shape and a storage class. Dimensions are concrete, except two
// that each step binds: kTokens (rows of the step) and kOutputs (rows whose logits are requested).
// Activations are float32 [kTokens, n].
//
// Ops (ops.h). An op holds one of many small attribute structs; a walk is a Visit() of it (or a
// switch over kind() without default), so a new op does not compile until every walk handles it.
// Inputs and outputs are value ids in the order that its row states.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "program/ops.h"
#include "tensor/dtype.h"

namespace weft::program {

inline constexpr int64_t kTokens = -1;   // T: rows of the step
inline constexpr int64_t kOutputs = -2;  // R: rows of the step whose logits are requested
// A dimension: one rank's share of the T rows, which `ranks` tensor ranks, or the ranks of a
// context group, divide. Rank r of n has rows [T r / n, T (r + 1) / n). Memory plans use the
// largest share.
constexpr int64_t RowShare(int64_t ranks) {
    return -16 - ranks;
}
// The number of ranks of such a dimension; 0 for other dimensions.
constexpr int64_t SharingRanks(int64_t dim) {
    return dim < -16 && dim > -(int64_t{1} << 30) ? -16 - dim : 0;
}
// A dimension: piece `index` of the R rows, which are divided into pieces of `rows` rows (below
// 2^30). The piece is rows [index * rows, (index + 1) * rows), as far as they exist.
constexpr int64_t OutputPiece(int64_t index, int64_t rows) {
    return -((index + 1) << 30) - rows;
}
// The first row and the maximum number of rows of an OutputPiece dimension; no rows for other
// dimensions.
struct RowPiece {
    int64_t begin = 0, rows = 0;
};
constexpr RowPiece PieceOf(int64_t dim) {
    if (dim > -(int64_t{1} << 30)) return {};
    const int64_t rows = -dim % (int64_t{1} << 30);
    return {(-dim / (int64_t{1} << 30) - 1) * rows, rows};
}
// The size of a dimension in a step of T = tokens and R = outputs rows. For a share of T: the
// largest share that a rank has.
int64_t BindDim(int64_t dim, int64_t tokens, int64_t outputs);

struct Shape {
    std::array<int64_t, 4> dims{};
    int rank = 0;

    Shape() = default;
    Shape(std::initializer_list<int64_t> list);
    bool operator==(const Shape&) const = default;
    int64_t operator[](int i) const { return dims[static_cast<size_t>(i)]; }
    // Number of elements when T and R are bound.
    int64_t Elements(int64_t tokens, int64_t outputs) const;
    std::string Text() const;  // "[T, 576]"
};

enum class Storage {
    kWeight,      // from the model file (or a trained parameter)
    kActivation,  // lives in the arena, from its first write to its last read
    kState,       // KV pages: outlives the step
    kSlots,       // recurrent state: `shape` per slot; outlives the step
    kInput,       // bound at each step: token ids, positions
    kGradient,    // gradient of a weight: accumulates (+=) over steps
    kOptimizer,   // optimizer state: outlives all steps
    kView,        // a range of the elements of another value
};

// The part of a file's tensor that a weight value holds: rows [row_begin, row_begin + dims[0]) and
// columns [col_begin, col_begin + dims[1]) of the tensor `name`. A stack of matrices [m, n, k]
// holds these rows and columns of m matrices, which the file stores one below the other. A stack
// [m, 1, n] holds m vectors.
struct WeightSlice {
    std::string name;
    int64_t row_begin = 0;
    int64_t col_begin = 0;
    int64_t home_row = 0;      // first row of its matrix in the tensor (Q, K, V in one tensor)
    int64_t first_matrix = 0;  // stacks: the first matrix, and the rows per matrix in the file
    int64_t matrix_rows = 0;
    bool transposed = false;  // stacks: the file holds each matrix transposed
};

struct Value {
    std::string name;  // unique in its Program, as printed: "l0.attn.q"
    DType dtype = DType::kF32;
    Shape shape;
    Storage storage = Storage::kActivation;
    WeightSlice slice{};  // weights only
    // kView: elements [base_begin, ...) of `base`, which is not a view and has the same dtype. If
    // the base's rows are R, the view's rows are a piece of R.
    ValueId base = kNoValue;
    int64_t base_begin = 0;
    // kState: positions that share a row of a page; divides kLeastPage.
    int64_t row_positions = 1;
};

// Positions of a KV page are a multiple of this.
inline constexpr int64_t kLeastPage = 64;
// Positions that share a row in a cache with a row per `stride` positions. (A page always has a
// row, even if windows are longer than pages.)
constexpr int64_t RowPositions(int64_t stride) {
    return stride < kLeastPage ? stride : kLeastPage;
}

// The row of the file's tensor that holds row `row` of a weight. The rows of a stack are numbered
// consecutively.
int64_t FileRow(const Value& weight, int64_t row);
// Matrix i of a stack as a separate weight.
Value MatrixOf(const Value& stack, int64_t i);

// Bytes of a KV state (kState) for `positions` positions, in whole rows.
int64_t StateBytes(const Value& state, int64_t positions);

// Bytes of a slot of a recurrent state (kSlots).
int64_t SlotBytes(const Value& state);

struct Program {
    std::vector<Value> values;
    std::vector<Op> ops;

    ValueId AddValue(Value value);
    // Appends an op whose output is a new activation; returns the output.
    ValueId Emit(OpAttributes attributes, std::vector<ValueId> inputs, std::string name,
                 Shape shape);
    // As above; the output has the shape of the value `like`. (An argument value(x).shape may be
    // read after another argument has appended a value, and then refers to freed memory.)
    ValueId EmitLike(OpAttributes attributes, std::vector<ValueId> inputs, std::string name,
                     ValueId like) {
        const Shape shape = value(like).shape;
        return Emit(std::move(attributes), std::move(inputs), std::move(name), shape);
    }
    const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
    ValueId Find(std::string_view name) const;  // kNoValue: not found
    // The value that holds the elements: a view's base, otherwise the value itself.
    ValueId HomeOf(ValueId id) const {
        return value(id).storage == Storage::kView ? value(id).base : id;
    }
};

// Checks every op's operand count, shapes, dtypes, and that each activation is written before it
// is read. The error names op number, kind and value.
Status CheckShapes(const Program& program);

// One line per op, then one per weight and state value. Deterministic; golden tests compare it.
std::string Print(const Program& program);

// The place of each activation in one arena, from liveness: other values may use a value's bytes
// after its last use. Offsets are 64-byte aligned; -1 for values that are not activations.
struct ArenaPlan {
    std::vector<int64_t> offsets;  // by ValueId
    int64_t size_bytes = 0;
};
// tokens, outputs: maximum rows of a step. `keep` values stay alive to the end.
ArenaPlan PlanArena(const Program& program, int64_t tokens, int64_t outputs,
                    const std::vector<ValueId>& keep = {});

// Bytes of all KV states of a Program.
int64_t StateBytes(const Program& program, int64_t positions);
// Bytes per slot of all recurrent states; 0: the Program has none.
int64_t SlotBytes(const Program& program);

}  // namespace weft::program
