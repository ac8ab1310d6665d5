#include "program/program.h"

#include <algorithm>

namespace weft::program {

Shape::Shape(std::initializer_list<int64_t> list) : rank(static_cast<int>(list.size())) {
    WEFT_CHECK(list.size() <= dims.size());
    std::copy(list.begin(), list.end(), dims.begin());
}

int64_t BindDim(int64_t dim, int64_t tokens, int64_t outputs) {
    if (dim >= 0) return dim;
    if (dim == kTokens) return tokens;
    if (dim == kOutputs) return outputs;
    if (const int64_t ranks = SharingRanks(dim); ranks > 0) return (tokens + ranks - 1) / ranks;
    const RowPiece piece = PieceOf(dim);
    return std::clamp(outputs - piece.begin, int64_t{0}, piece.rows);
}

int64_t Shape::Elements(int64_t tokens, int64_t outputs) const {
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) count *= BindDim((*this)[i], tokens, outputs);
    return count;
}

namespace {

std::string DimText(int64_t dim) {
    if (dim >= 0) return std::to_string(dim);
    if (dim == kTokens) return "T";
    if (dim == kOutputs) return "R";
    if (const int64_t ranks = SharingRanks(dim); ranks > 0) return fmt::format("T/{}", ranks);
    const RowPiece piece = PieceOf(dim);
    return fmt::format("R[{}:{}]", piece.begin, piece.begin + piece.rows);
}

}  // namespace

std::string Shape::Text() const {
    std::string text = "[";
    for (int i = 0; i < rank; ++i) {
        if (i > 0) text += ", ";
        text += DimText((*this)[i]);
    }
    return text + "]";
}

int64_t FileRow(const Value& weight, int64_t row) {
    const WeightSlice& slice = weight.slice;
    if (weight.shape.rank < 3) return slice.row_begin + row;
    const int64_t matrix = slice.first_matrix + row / weight.shape[1];
    return matrix * slice.matrix_rows + slice.row_begin + row % weight.shape[1];
}

Value MatrixOf(const Value& stack, int64_t i) {
    WEFT_CHECK(stack.shape.rank == 3);
    Value matrix = stack;
    matrix.name = fmt::format("{}.{}", stack.name, i);
    matrix.shape = {stack.shape[1], stack.shape[2]};
    matrix.slice.row_begin = FileRow(stack, i * stack.shape[1]);
    matrix.slice.first_matrix = matrix.slice.matrix_rows = 0;
    return matrix;
}

ValueId Program::AddValue(Value value) {
    values.push_back(std::move(value));
    return static_cast<ValueId>(values.size() - 1);
}

ValueId Program::Emit(OpAttributes attributes, std::vector<ValueId> inputs, std::string name,
                      Shape shape) {
    Value value;
    value.name = std::move(name);
    value.shape = shape;
    const ValueId output = AddValue(std::move(value));
    ops.push_back(Op{std::move(attributes), std::move(inputs), {output}});
    return output;
}

ValueId Program::Find(std::string_view name) const {
    const auto found = std::ranges::find(values, name, &Value::name);
    return found == values.end() ? kNoValue : static_cast<ValueId>(found - values.begin());
}

int64_t StateBytes(const Value& state, int64_t positions) {
    const int64_t rows = (positions + state.row_positions - 1) / state.row_positions;
    return rows * state.shape[0] * RowBytes(state.dtype, state.shape[1]);
}

int64_t SlotBytes(const Value& state) {
    return RowBytes(state.dtype, state.shape.Elements(0, 0));
}

int64_t StateBytes(const Program& program, int64_t positions) {
    int64_t bytes = 0;
    for (const Value& value : program.values) {
        if (value.storage == Storage::kState) bytes += StateBytes(value, positions);
    }
    return bytes;
}

int64_t SlotBytes(const Program& program) {
    int64_t bytes = 0;
    for (const Value& value : program.values) {
        if (value.storage == Storage::kSlots) bytes += SlotBytes(value);
    }
    return bytes;
}

}  // namespace weft::program
