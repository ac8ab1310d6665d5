// Dispatches: the form into which a Program is lowered for Vulkan. A dispatch runs one kernel with
// its arguments.
//
// A step is lowered for its shape (StepShape), op by op, to kernels with complete arguments.
// Kernels read everything else that differs between steps (token ids, positions, pages) from tables
// in mapped memory (StepTables). So commands are recorded once per shape and submitted many times.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "backend/executable.h"
#include "backend/gpu/dispatch/tile_shapes.h"
#include "base/result.h"
#include "gpu/device.h"
#include "program/program.h"

namespace weft::backend::on_gpu {

// Everything that a recording depends on.
struct StepShape {
    int32_t rows = 0, outputs = 0;
    int32_t sequences = 0;
    // For attention. blocks: the rows of each sequence are divided into blocks of at most
    // kBlockRows rows; this is the number of all blocks. positions: the largest number of positions
    // that a row attends to, rounded up to a power of two.
    int32_t blocks = 0;
    int32_t positions = 0;
    bool adapted = false;  // some rows use an adapter
    // This rank's rows, if tensor ranks divide the rows.
    int32_t own_begin = 0, own_rows = 0;
    bool streams = false;  // Step::streams
    auto operator<=>(const StepShape&) const = default;
    int64_t RowsOf(int64_t dim) const {
        return program::SharingRanks(dim) > 0 ? own_rows : program::BindDim(dim, rows, outputs);
    }
    int64_t ElementsOf(program::Shape of) const {
        if (of.rank > 0) of.dims[0] = RowsOf(of[0]);
        return of.Elements(rows, outputs);
    }
};
inline constexpr int32_t kBlockRows = 16;

// Table entries as kernels read them (scalar layout).
struct SequenceEntry {
    int32_t row_begin = 0, row_count = 0, position = 0;
    int32_t first_page = 0;  // index of the sequence's first page in the table `pages`
    int32_t adapter = 0;
};
// A sequence's state slots (backend/step.h), if the Program has recurrent state. The states that
// the sequence writes are entries [first_write, first_write + writes) of the table `state_writes`.
struct StateEntry {
    int32_t row_begin = 0, row_count = 0, from = -1, to = -1;
    int32_t first_write = 0, writes = 0;
};
struct BlockEntry {
    int32_t sequence = 0, row_begin = 0, row_count = 0;  // rows of the step
};
// Device addresses of the tables in mapped memory.
struct StepTables {
    uint64_t tokens = 0, positions = 0;  // int32 [rows]
    uint64_t token_types = 0;            // int32 [rows]: 1 in the second text of a pair, else 0
    uint64_t output_rows = 0;            // int32 [outputs]
    uint64_t row_sequence = 0;           // int32 [rows]: index in `sequences`
    uint64_t sequences = 0;              // SequenceEntry [sequences]
    uint64_t blocks = 0;                 // BlockEntry [blocks]
    uint64_t pages = 0;                  // int32, of all sequences
    uint64_t copies = 0;                 // int32 pairs: from, to
    uint64_t states = 0;                 // StateEntry [sequences]
    uint64_t state_writes = 0;           // int32 pairs, of all sequences: row, slot
    // Training only.
    uint64_t targets = 0;                           // int32 [outputs]
    uint64_t loss_gradient = 0;                     // float, for each row of targets
    uint64_t side_gradient = 0;                     // float
    uint64_t noise_keys = 0, noise_amplitudes = 0;  // int32 and float [rows]
    // Training only: int32 [rows]: the row numbers, sorted by the rows' tokens. Rows with the same
    // token are in ascending order.
    uint64_t token_order = 0;
};

// Device memory that a dispatch touches.
struct Region {
    uint64_t address = 0, bytes = 0;
    bool operator==(const Region&) const = default;
    bool Overlaps(const Region& other) const {
        return address < other.address + other.bytes && other.address < address + bytes;
    }
};

// Faster arithmetic for matrix products than the float32 kernels, which support all types on all
// devices. In training, only `compute` decides how operands are rounded: `integer` has no effect,
// and `matrix` affects only products of bfloat16 (lower/gemm.h).
struct Arithmetic {
    // Activations for quantized weights are rounded to int8, with one scale per 32 columns.
    bool integer = false;
    // kUnits: products with more than kMatvecRows rows are computed in f16 on matrix units, and so
    // is attention over caches in steps of more than matvec_rows rows. kEmulated: the same, but
    // computed by ordinary instructions, for tests.
    enum class Matrix { kNone, kUnits, kEmulated };
    Matrix matrix = Matrix::kNone;
    // Without matrix units, products of up to this many rows use the matvec kernels, as a decode
    // step does. The matvec kernels read the weights once per 8 rows. Products of more rows use the
    // tile kernels, which read the weights once per tile of rows. With few rows, there would be too
    // few tiles to keep the whole GPU busy.
    int64_t matvec_rows = 8;
    // On matrix units, products of up to kMostDividedRows rows are divided along the columns until
    // they have about this many workgroups. 0: they are not divided. The bits of results depend on
    // this number.
    int64_t split_groups = 0;
    // Shapes of tiles on matrix units. Bits do not depend on them.
    TileShapes shapes{};
    // On matrix units, a product is computed in large tiles if it has at least this many large
    // tiles.
    int64_t least_large_tiles = 100;
    // Training only. kBF16: operands of products and attention are first rounded to bfloat16. kF32,
    // kF16: operands are widened to float32. Weights of block types are first converted to this
    // type. Sums are float32 in all cases (kernels/dense/gemm.h, Compute).
    DType compute = DType::kF32;
    // Training only: a weight of a block type is converted in pieces of at most about this size. A
    // sum over the rows of the weight is rounded to float32 after each piece.
    uint64_t decoded_bytes = uint64_t{256} << 20;
    auto operator<=>(const Arithmetic&) const = default;
};

// The axis along which a dispatch that takes long may be split into parts, which then run in
// several submissions. The kernel must not read the number of workgroups along that axis, and none
// of its workgroups may wait for another workgroup.
enum class Parts { kOne, kAlongY, kAlongZ };

struct Dispatch {
    const gpu::Kernel* kernel = nullptr;
    std::array<std::byte, gpu::kMostArgsBytes> args{};
    uint32_t args_bytes = 0;
    uint32_t x = 1, y = 1, z = 1;  // workgroups
    Parts parts = Parts::kOne;
    int32_t op = 0;  // index in the Program
    // If the kernel begins with a sum over ranks (HostSignal::Head): the index of that sum's op;
    // else -1.
    int32_t sum = -1;
    std::vector<Region> reads, writes;
    // The largest number of parts.
    uint32_t MostParts() const {
        return parts == Parts::kOne ? 1 : parts == Parts::kAlongY ? y : z;
    }
    // Workgroups of part i of n.
    gpu::WorkgroupCounts Part(uint32_t i, uint32_t n) const {
        gpu::WorkgroupCounts groups{{x, y, z}};
        if (parts == Parts::kOne) return groups;
        const size_t axis = parts == Parts::kAlongY ? 1 : 2;
        const uint64_t all = groups.count[axis];
        groups.first[axis] = static_cast<uint32_t>(all * i / n);
        groups.count[axis] = static_cast<uint32_t>(all * (i + 1) / n) - groups.first[axis];
        return groups;
    }
};

// A weight of two or three dimensions in the layout of weights.h. Vectors are float32.
struct WeightPlace {
    DType dtype = DType::kF32;
    int64_t matrices = 1, rows = 0, cols = 0;
    uint64_t address = 0;  // address of the weight's first plane
};
// A layer's K, V or latent cache: elements [page][kv_heads][page_tokens][head_dim] of type dtype. A
// row of type Q8_0 is stored as a sequence of blocks (tensor/quant.h).
struct CachePlace {
    DType dtype = DType::kF16;
    int64_t kv_heads = 0, page_tokens = 0, head_dim = 0;
    uint64_t address = 0;
    int64_t pages = 1;
    int64_t RowBytes() const { return weft::RowBytes(dtype, head_dim); }
    int64_t PageBytes() const { return RowBytes() * page_tokens * kv_heads; }
    Region All() const { return {address, static_cast<uint64_t>(PageBytes() * pages)}; }
};

// Whether a weight is a vector or a stack of vectors [m, 1, n]. In inference, both are float32.
inline bool HoldsVectors(const program::Shape& shape) {
    return shape.rank == 1 || (shape.rank == 3 && shape[1] == 1);
}

// A specialization constant: a number, a bool or an enumerator.
struct SpecConstant {
    template <typename T>
    requires(std::is_integral_v<T> || std::is_enum_v<T>) constexpr SpecConstant(T value)
        : bits(static_cast<uint32_t>(value)) {}  // NOLINT: implicit
    uint32_t bits;
};

constexpr int64_t CeilDiv(int64_t count, int64_t each) {
    return (count + each - 1) / each;
}

// A scalar that differs from one update to the next (update_scalars.h).
enum class UpdateScalarKind {
    kRate,
    kGradientScale,
    kCorrection,    // 1 - parameter^number; number counts updates from 1
    kPower,         // number^parameter
    kFirst,         // 1 in the first update, else 0
    kAverageShare,  // Step::average_share
};

// The interface through which the lowerings of ops (lower/) use the executable. Lowerings use
// nothing else of the executable.
class Emitter {
  public:
    virtual ~Emitter() = default;

    virtual const program::Program& program() const = 0;
    virtual const gpu::Description& gpu() const = 0;
    virtual const StepShape& shape() const = 0;
    virtual const StepTables& tables() const = 0;
    virtual bool reference() const = 0;  // use the simplest kernel of each kind, for all row counts
    virtual const Arithmetic& arithmetic() const = 0;

    // Locations of values. Rows of an activation are contiguous.
    virtual uint64_t Address(program::ValueId id) const = 0;  // activations, vectors, inputs
    virtual const WeightPlace& Weight(program::ValueId id) const = 0;
    virtual const CachePlace& Cache(program::ValueId id) const = 0;
    int64_t Rows(program::ValueId id) const {  // number of rows in this step; T for a value [T, K,
                                               // n]
        return RowsOf(program().value(id).shape);
    }
    int64_t Cols(program::ValueId id) const {  // number of columns; n for a value [T, K, n]
        const program::Shape& shape = program().value(id).shape;
        return shape[shape.rank - 1];
    }
    // The region of a whole activation, for `reads` and `writes`.
    Region All(program::ValueId id) const {
        const program::Value& value = program().value(id);
        const int64_t count = shape().ElementsOf(value.shape);
        return {Address(id), static_cast<uint64_t>(weft::RowBytes(value.dtype, count))};
    }
    // Scratch memory of the step, for use within one op or to pass data between ops. Requests with
    // the same name get the same memory, which has the size of the largest request. As for all
    // memory, the `reads` and `writes` of dispatches determine in which order dispatches access it.
    virtual Result<Region> Scratch(std::string_view name, uint64_t bytes) = 0;
    // Finds the data named `what` that an earlier dispatch derived from the bytes in `from`, so
    // that another op need not derive it again. The data is valid until a dispatch writes to either
    // region.
    std::optional<Region> FindDerived(std::string_view what, const Region& from) const {
        for (const Made& made : made_) {
            if (made.what == what && made.from == from) return made.at;
        }
        return std::nullopt;
    }
    void NoteDerived(std::string_view what, const Region& from, const Region& at) {
        made_.push_back({std::string(what), from, at});
    }
    // Forgets all derived data. Call this if code other than Run() may have written to any region.
    void ForgetDerived() { made_.clear(); }
    // Whether the kernel of an op may also compute the values of later ops. It may not if a probe
    // or a trace observes each op.
    bool fuses() const { return fuses_; }
    void set_fuses(bool fuses) { fuses_ = fuses; }
    // Whether this is a training step. In training, weights lie row-major at Address() like other
    // values; only weights of block types are at Weight().
    bool trains() const { return trains_; }
    void set_trains(bool trains) { trains_ = trains; }
    // A constant table on the device (inverse frequencies, adapter pairs), created once per name.
    // At the first call with a name, `make` writes the bytes of the table.
    using MakeBytes = std::function<void(std::span<std::byte> out)>;
    virtual Result<Region> Constant(const std::string& name, uint64_t bytes,
                                    const MakeBytes& make) = 0;
    // Address of a scalar of the optimizer update, a float32 in mapped memory. The executable
    // writes the scalar before each update.
    virtual uint64_t UpdateScalar(UpdateScalarKind kind, double parameter) = 0;
    uint64_t UpdateScalar(UpdateScalarKind kind) { return UpdateScalar(kind, 0); }
    // The kernel of a shader with these specialization constants, created once. Errors:
    // kUnsupported (this build lacks the shader).
    virtual Result<const gpu::Kernel*> Kernel(std::string_view shader,
                                              std::span<const uint32_t> constants,
                                              uint32_t args_bytes, uint32_t subgroup) = 0;
    virtual void Emit(Dispatch dispatch) = 0;

    // Whether a submission waits for this sum over ranks while it runs (host_signal.h).
    virtual bool Exchanges(const program::Op& sum) const = 0;

    template <typename Args>
    Status Run(std::string_view shader, std::initializer_list<SpecConstant> constants,
               const Args& args, std::array<int64_t, 3> groups, std::vector<Region> reads,
               std::vector<Region> writes, uint32_t subgroup = 0, Parts parts = Parts::kOne,
               int32_t sum = -1) {
        static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= gpu::kMostArgsBytes);
        if (groups[0] == 0 || groups[1] == 0 || groups[2] == 0) return {};
        Dispatch dispatch;
        std::vector<uint32_t> bits;
        for (const SpecConstant& constant : constants) bits.push_back(constant.bits);
        WEFT_ASSIGN(dispatch.kernel, Kernel(shader, bits, sizeof(Args), subgroup));
        std::memcpy(dispatch.args.data(), &args, sizeof(Args));
        dispatch.args_bytes = sizeof(Args);
        dispatch.x = static_cast<uint32_t>(groups[0]);
        dispatch.y = static_cast<uint32_t>(groups[1]);
        dispatch.z = static_cast<uint32_t>(groups[2]);
        dispatch.parts = parts;
        dispatch.sum = sum;
        dispatch.reads = std::move(reads);
        dispatch.writes = std::move(writes);
        for (const Region& region : dispatch.writes) {
            std::erase_if(made_, [&](const Made& made) {
                return made.from.Overlaps(region) || made.at.Overlaps(region);
            });
        }
        Emit(std::move(dispatch));
        return {};
    }

  private:
    int64_t RowsOf(const program::Shape& shape_of) const {
        if (shape_of.rank == 0 || (shape_of.rank == 1 && shape_of[0] >= 0)) return 1;
        return shape().RowsOf(shape_of[0]);
    }

    struct Made {
        std::string what;
        Region from, at;
    };
    std::vector<Made> made_;
    bool fuses_ = false, trains_ = false;
};

}  // namespace weft::backend::on_gpu
