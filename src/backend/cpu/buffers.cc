#include "backend/cpu/buffers.h"

#include <algorithm>

#include "base/bytes.h"
#include "kernels/weight_rows.h"
#include "tensor/quant.h"

namespace weft::backend {
namespace {

using program::Pool;
using program::ValueId;

constexpr int64_t kAlign = 64;
// Rows of a weight are read and packed in pieces of about this size, so that loading needs little
// extra memory.
constexpr int64_t kLoadPieceBytes = 1 << 20;
// A drive that finishes no read for so long is lost. (Drives that sleep need some seconds.)
constexpr int64_t kDriveMs = 30'000;
// Made-up addresses of the pools before allocation.
constexpr uintptr_t kNowhere = uintptr_t{1} << 44;

int64_t LineUp(int64_t bytes) {
    return (bytes + kAlign - 1) / kAlign * kAlign;
}

// Whether the value is a vector or a stack of vectors [m, 1, n], which are float32.
bool IsVectors(const program::Shape& shape) {
    return shape.rank == 1 || (shape.rank == 3 && shape[1] == 1);
}

const char* PoolText(Pool pool) {
    switch (pool) {
        case Pool::kWeight: return "the weights";
        case Pool::kGradient: return "gradients";
        case Pool::kOptimizer: return "the optimizer's state";
        case Pool::kCache: return "the KV cache and recurrent state";
        case Pool::kInput: return "inputs";
        case Pool::kKept:
        case Pool::kBrief:
        case Pool::kNone: break;
    }
    return "activations";
}

}  // namespace

// ---- Scratch ------------------------------------------------------------------------------------

std::byte* Scratch::Take(const std::string& name, int64_t bytes) {
    auto part = std::ranges::find(parts_, name, &Part::name);
    if (part == parts_.end()) part = parts_.insert(parts_.end(), {name, 0, 0});
    if (memory_.data() == nullptr) {
        part->bytes = std::max(part->bytes, LineUp(bytes));
        return reinterpret_cast<std::byte*>(kNowhere);
    }
    WEFT_CHECK(bytes <= part->bytes);
    return memory_.data() + part->offset;
}

std::byte* Scratch::TakeOwn(int64_t bytes_of_thread) {
    if (memory_.data() == nullptr) {
        own_bytes_ = std::max(own_bytes_, LineUp(bytes_of_thread));
        return reinterpret_cast<std::byte*>(kNowhere);
    }
    WEFT_CHECK(bytes_of_thread <= own_bytes_);
    return memory_.data();
}

int64_t Scratch::TotalBytes(int threads) const {
    int64_t bytes = own_bytes_ * threads;
    for (const Part& part : parts_) bytes += part.bytes;
    return bytes;
}

Status Scratch::Allocate(int threads) {
    int64_t offset = own_bytes_ * threads;
    for (Part& part : parts_) {
        part.offset = offset;
        offset += part.bytes;
    }
    WEFT_ASSIGN(memory_, Memory::Allocate(std::max(offset, kAlign), "scratch"));
    return {};
}

// ---- Values -------------------------------------------------------------------------------------

Buffers::Buffers(const program::ChunkedProgram& chunked, const CompileOptions& options,
                 const kernels::Kernels& kernels, std::vector<int> cores)
    : chunked_(chunked),
      program_(chunked.program),
      options_(options),
      kernels_(kernels),
      experts_({kernels.pack, std::move(cores), options.drive_file, kDriveMs}) {
    program::LayoutOptions layout;
    layout.tokens = options.max_tokens;
    layout.outputs = options.max_outputs;
    layout.positions = options.kv_pages * options.page_tokens;
    layout.state_slots = options.state_slots;
    layout.slots = options.slots;
    layout.overlap = options.beside;
    layout.in_halves = options.overlap != Overlap::kNever;
    layout.keep = options.keep;
    if (options.drive_memory > 0) layout.align = DrivePage();
    if (packs()) layout.weight_bytes = [this](ValueId id) { return WeightBytes(id); };
    layout_ = program::MemoryLayout(chunked, layout);
}

// Whether an op of adapters reads the weight.
bool Buffers::IsAdapter(ValueId id) const {
    return std::ranges::any_of(program_.ops, [&](const program::Op& op) {
        return program::IsOfAdapters(op.kind()) &&
               std::ranges::find(op.inputs, id) != op.inputs.end();
    });
}

int64_t Buffers::WeightBytes(ValueId id) const {
    const program::Value& value = program_.value(id);
    const program::Shape& shape = value.shape;
    if (IsAdapter(id)) {
        const int64_t matrices = shape.rank == 3 ? shape[0] : 1;
        const int64_t rows = shape[shape.rank - 2], cols = shape[shape.rank - 1];
        return matrices * kernels::AdapterBytes(value.dtype, rows, cols);
    }
    if (IsVectors(shape)) return shape.Elements(0, 0) * static_cast<int64_t>(sizeof(float));
    if (shape.rank == 2) return kernels_.packed_bytes(value.dtype, shape[0], shape[1]);
    return shape[0] * StrideOf(id);
}

// Whether the weight is a stack of experts that stays on the drive.
bool Buffers::IsOnDrive(ValueId weight) const {
    const program::Shape& shape = program_.value(weight).shape;
    return options_.drive_memory > 0 && shape.rank == 3 && !IsVectors(shape) &&
           std::ranges::any_of(program_.ops, [&](const program::Op& op) {
               return program::IsOfExperts(op) && program::WeightOf(op) == weight;
           });
}

int64_t Buffers::StrideOf(ValueId stack) const {
    const program::Value& value = program_.value(stack);
    const program::Shape& s = value.shape;
    const int64_t stride = kernels::StackStride(kernels_, value.dtype, s[1], s[2]);
    return IsOnDrive(stack) ? (stride + DrivePage() - 1) / DrivePage() * DrivePage() : stride;
}

Status Buffers::Allocate() {
    for (size_t i = 0; i < program::kPools; ++i) {
        const auto pool = static_cast<Pool>(i);
        // (Empty values also have an address, such as an empty share of a rank.)
        const int64_t bytes = std::max(layout_.PoolBytes(pool), kAlign);
        const bool on_drive = pool == Pool::kOptimizer && !options_.optimizer_folder.empty();
        WEFT_ASSIGN(pools_[i],
                    on_drive ? Memory::OnDrive(options_.optimizer_folder, bytes, PoolText(pool))
                             : Memory::Allocate(bytes, PoolText(pool)));
    }
    allocated_ = true;
    return {};
}

Status Buffers::PlanDrive(int threads) {
    if (options_.drive_memory == 0) return {};
    for (const program::Op& op : program_.ops) {
        if (!program::IsOfExperts(op)) continue;
        const ValueId weight = program::WeightOf(op);
        if (!IsOnDrive(weight)) continue;
        experts_.Add(op.inputs[1], weight, program_.value(weight).name, stack(weight));
    }
    if (experts_.empty()) return {};
    int64_t others = static_cast<int64_t>(kReaders) * kReaderBytes - experts_.TotalBytes();
    others += scratch_.TotalBytes(threads);
    for (const Memory& pool : pools_) others += pool.size_bytes();
    const int64_t room = static_cast<int64_t>(options_.drive_memory) - others;
    if (room < experts_.LeastBytes()) {
        return MakeError(ErrorCode::kOutOfMemory,
                         "{} of memory are too few: weights that stay in memory, KV cache and "
                         "activations need {}, and the experts of one layer {}. Give --memory {} "
                         "more",
                         BytesText(options_.drive_memory), BytesText(static_cast<uint64_t>(others)),
                         BytesText(static_cast<uint64_t>(experts_.LeastBytes())),
                         BytesText(static_cast<uint64_t>(experts_.LeastBytes() - room)));
    }
    experts_.SetLimit(std::min(room, experts_.TotalBytes()));
    return {};
}

std::byte* Buffers::At(ValueId id, int slot) const {
    const Pool pool = layout_.PlaceOf(id).pool;
    if (pool == Pool::kNone) return nullptr;
    const auto index = static_cast<size_t>(pool);
    std::byte* const begin =
        allocated_ ? pools_[index].data() : reinterpret_cast<std::byte*>(kNowhere * (index + 2));
    return begin + layout_.OffsetOf(id, slot);
}

std::span<std::byte> Buffers::PoolBytes(Pool pool) const {
    const Memory& memory = pools_[static_cast<size_t>(pool)];
    return {memory.data(), static_cast<size_t>(memory.size_bytes())};
}

kernels::PackedMatrix Buffers::matrix(ValueId id) const {
    const program::Value& value = program_.value(id);
    return {value.dtype, value.shape[0], value.shape[1], At(id)};
}

kernels::PackedStack Buffers::stack(ValueId id) const {
    const program::Value& value = program_.value(id);
    const program::Shape& s = value.shape;
    return {value.dtype, s[0], s[1], s[2], StrideOf(id), At(id)};
}

kernels::KvCache Buffers::cache(ValueId id) const {
    const program::Value& value = program_.value(id);
    const int64_t page_rows = options_.page_tokens / value.row_positions;
    return {value.dtype, At(id), value.shape[0], page_rows, value.shape[1]};
}

// ---- Weights ------------------------------------------------------------------------------------

namespace {

// Loads a vector, or a stack [m, 1, n] with a vector in each row, as float32.
Status LoadVectors(const program::Value& value, std::byte* out, const RowSource& source) {
    const bool stack = value.shape.rank == 3;
    const int64_t vectors = stack ? value.shape[0] : 1, count = value.shape[stack ? 2 : 0];
    std::vector<std::byte> raw(static_cast<size_t>(RowBytes(value.dtype, count)));
    for (int64_t i = 0; i < vectors; ++i) {
        WEFT_TRY(source(i, stack ? 1 : count, raw));
        DequantizeRow(value.dtype, raw,
                      {reinterpret_cast<float*>(out) + i * count, static_cast<size_t>(count)});
    }
    return {};
}

// Loads the rows unpacked, in order.
Status LoadRows(const program::Value& value, std::byte* out, const RowSource& source) {
    const program::Shape& shape = value.shape;
    const bool vector = shape.rank == 1;
    const int64_t rows = vector ? shape[0] : shape.Elements(0, 0) / shape[shape.rank - 1];
    const int64_t row_bytes = RowBytes(value.dtype, vector ? 1 : shape[shape.rank - 1]);
    const int64_t of_matrix = shape.rank == 3 ? shape[1] : rows;
    const int64_t piece = std::max(kLoadPieceBytes / row_bytes, int64_t{1});
    for (int64_t row = 0; row < rows;) {
        const int64_t left = of_matrix - row % of_matrix;
        const int64_t count = vector ? rows : std::min(piece, left);
        WEFT_TRY(
            source(row, count, {out + row * row_bytes, static_cast<size_t>(count * row_bytes)}));
        row += count;
    }
    return {};
}

}  // namespace

int64_t PieceRows(const kernels::PackedMatrix& matrix, int64_t bytes) {
    const int64_t strip_bytes = RowBytes(matrix.dtype, matrix.cols) * kernels::kStripRows;
    const int64_t strips = std::max<int64_t>(1, bytes / strip_bytes);
    return std::min(strips * kernels::kStripRows, matrix.rows);
}

Status LoadPiece(const kernels::PackedMatrix& matrix, int64_t row, int64_t count, int64_t first_row,
                 const RowSource& source, ExpertStore::Pack pack, std::vector<std::byte>& raw) {
    const int64_t row_bytes = RowBytes(matrix.dtype, matrix.cols);
    raw.resize(static_cast<size_t>(count * row_bytes));
    WEFT_TRY(source(first_row + row, count, raw));
    pack(matrix, row, count, raw.data(), row_bytes);
    return {};
}

namespace {

// first_row: the row of the weight with which the matrix begins.
Status LoadMatrix(const kernels::PackedMatrix& matrix, int64_t first_row, const RowSource& source,
                  ExpertStore::Pack pack) {
    std::vector<std::byte> raw;
    const int64_t piece = PieceRows(matrix, kLoadPieceBytes);
    for (int64_t row = 0; row < matrix.rows; row += piece) {
        const int64_t count = std::min(piece, matrix.rows - row);
        WEFT_TRY(LoadPiece(matrix, row, count, first_row, source, pack, raw));
    }
    return {};
}

// A matrix of an adapter, or one for each expert.
Status LoadAdapter(const program::Value& value, std::byte* out, const RowSource& source) {
    const program::Shape& shape = value.shape;
    const int64_t rows = shape[shape.rank - 2], cols = shape[shape.rank - 1];
    const int64_t bytes = kernels::AdapterBytes(value.dtype, rows, cols);
    for (int64_t i = 0; i < (shape.rank == 3 ? shape[0] : 1); ++i) {
        const kernels::PackedMatrix matrix{value.dtype, rows, cols, out + i * bytes};
        WEFT_TRY(LoadMatrix(matrix, i * rows, source, kernels::PackAdapter));
    }
    return {};
}

}  // namespace

Status Buffers::Load(ValueId id, const RowSource& source) {
    const program::Value& value = program_.value(id);
    if (IsOnDrive(id)) {
        const std::lock_guard lock(loading_);
        experts_.Load(id, source);
        return {};
    }
    if (!packs()) return LoadRows(value, At(id), source);
    if (IsAdapter(id)) return LoadAdapter(value, At(id), source);
    if (IsVectors(value.shape)) return LoadVectors(value, At(id), source);
    if (value.shape.rank == 2) return LoadMatrix(matrix(id), 0, source, kernels_.pack);
    const kernels::PackedStack matrices = stack(id);
    for (int64_t i = 0; i < matrices.count; ++i) {
        WEFT_TRY(LoadMatrix(matrices.Matrix(i), i * matrices.rows, source, kernels_.pack));
    }
    return {};
}

bool Buffers::CanReadRows(ValueId id) const {
    const program::Value& value = program_.value(id);
    return packs() && value.shape.rank == 3 && !IsVectors(value.shape) && !IsOnDrive(id) &&
           kernels::CanReadBack(kernels_, value.dtype);
}

void Buffers::ReadRows(ValueId id, int64_t row_begin, int64_t count,
                       std::span<std::byte> out) const {
    const kernels::PackedStack matrices = stack(id);
    const int64_t row_bytes = RowBytes(matrices.dtype, matrices.cols);
    WEFT_CHECK(std::ssize(out) == count * row_bytes);
    kernels::ReadBack(kernels_, matrices.Matrix(row_begin / matrices.rows),
                      row_begin % matrices.rows, count, out.data(), row_bytes);
}

MemoryUse Buffers::Use(int threads) const {
    const auto bytes = [&](std::initializer_list<Pool> pools) {
        int64_t sum = 0;
        for (const Pool pool : pools) sum += layout_.PoolBytes(pool);
        return static_cast<uint64_t>(sum);
    };
    auto on_drive = static_cast<uint64_t>(experts_.TotalBytes() - experts_.limit());
    if (!options_.optimizer_folder.empty()) on_drive += bytes({Pool::kOptimizer});
    return {bytes({Pool::kWeight, Pool::kGradient, Pool::kOptimizer}) - on_drive,
            bytes({Pool::kCache}),
            bytes({Pool::kInput, Pool::kKept, Pool::kBrief}) +
                static_cast<uint64_t>(scratch_.TotalBytes(threads))};
}

}  // namespace weft::backend
