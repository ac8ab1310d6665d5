// An Emitter for tests and benchmarks of single ops: it allocates their values on a device, lowers
// one op, runs the emitted dispatches and reads the results back.
//
//     WEFT_VULKAN(device);                         // skips with a message where there is none
//     BenchEmitter e(device, StepShape{.rows = 3});
//     const ValueId x = e.AddFloats({kTokens, 64}, floats);       // an activation with values
//     const ValueId w = e.AddWeight(DType::kQ4_0, {16, 64}, blocks);
//     const ValueId y = e.AddFloats({kTokens, 16});               // NaN until it is written
//     ASSERT_TRUE(e.Lower(program::MatMul{}, {x, w}, {y}).ok());
//     ASSERT_TRUE(e.Run().ok());
//     std::vector<float> got = e.Floats(y);
//
// Guards of NaN surround every value. Run() fails if a dispatch wrote a byte outside the regions
// that it declares as written.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/gpu/dispatch/update_scalars.h"
#include "backend/gpu/dispatch/weights.h"
#include "backend/gpu/lower/lower.h"
#include "shaders/shaders.h"
#include "support/lavapipe.h"
#include "support/shared_objects.h"
#include "tensor/half.h"

namespace weft::backend::on_gpu::test {

using program::kOutputs;
using program::kTokens;
using program::ValueId;

// The device of this test program, opened once: the first usable one, with validation if
// WEFT_VULKAN_VALIDATE is set. Null, with the reason, if there is none.
struct TestDevice {
    std::shared_ptr<gpu::Device> device;
    std::string why_not;
};
inline TestDevice OpenTestDevice() {
    TestDevice made;
    const gpu::Api api = weft::test::TestApi();
    if (api == gpu::Api::kVulkan) weft::test::PointAtLavapipe();
    auto list = gpu::ListDevices(api);
    if (!list.ok()) return TestDevice{nullptr, list.error().message};
    made.why_not = "the driver lists no device";
    for (const gpu::Description& about : *list) {
        if (!about.unusable.empty()) {
            made.why_not = about.name + ": " + about.unusable;
            continue;
        }
        gpu::OpenOptions options;
        options.validate = std::getenv("WEFT_VULKAN_VALIDATE") != nullptr;
        auto opened = gpu::Device::Open(api, about.index, options);
        if (opened.ok()) return TestDevice{*opened, ""};
        made.why_not = opened.error().message;
    }
    if (shaders::Names().empty()) made.why_not += "; no shaders: glslc was not found";
    return made;
}
inline const TestDevice& TheTestDevice() {
    return weft::test::kSharedObjects->Get("test device", OpenTestDevice);
}
#define WEFT_VULKAN(name)                                                                   \
    if (test::TheTestDevice().device == nullptr)                                            \
        GTEST_SKIP() << "no Vulkan device to test with: " << test::TheTestDevice().why_not; \
    const std::shared_ptr<gpu::Device> name = test::TheTestDevice().device

inline constexpr uint64_t kGuardBytes = 256;

// Contents of the step's tables; row_sequence and blocks are derived from `sequences` if they are
// empty.
struct StepContents {
    std::vector<int32_t> tokens{}, positions{}, output_rows{};
    std::vector<SequenceEntry> sequences{};
    std::vector<int32_t> row_sequence{};
    std::vector<BlockEntry> blocks{};
    std::vector<int32_t> pages{};
    std::vector<int32_t> copies{};
    std::vector<int32_t> token_order{};
};

class BenchEmitter : public Emitter {
  public:
    BenchEmitter(std::shared_ptr<gpu::Device> device, StepShape shape)
        : device_(std::move(device)), about_(device_->description()), shape_(shape) {}

    // ---- Emitter
    const program::Program& program() const override { return program_; }
    const gpu::Description& gpu() const override { return about_; }
    const StepShape& shape() const override { return shape_; }
    const StepTables& tables() const override { return tables_; }
    bool reference() const override { return reference_; }
    const Arithmetic& arithmetic() const override { return arithmetic_; }
    uint64_t Address(ValueId id) const override {
        const auto view = views_.find(id);
        if (view == views_.end()) return values_.at(id)->address;
        const auto& [base, begin] = view->second;
        const DType dtype = program_.value(base).dtype;
        return Address(base) + static_cast<uint64_t>(weft::RowBytes(dtype, begin));
    }
    const WeightPlace& Weight(ValueId id) const override { return weights_.at(id); }
    const CachePlace& Cache(ValueId id) const override { return caches_.at(id); }
    bool Exchanges(const program::Op&) const override { return false; }
    Result<Region> Scratch(std::string_view name, uint64_t bytes) override {
        Block*& block = scratch_[std::string(name)];
        if (block == nullptr || block->bytes < bytes) block = Allocate(bytes);
        return Region{block->address, bytes};
    }
    Result<Region> Constant(const std::string& name, uint64_t bytes,
                            const MakeBytes& make) override {
        Block*& block = constants_[name];
        if (block == nullptr) {
            block = Allocate(bytes);
            make({block->data(), bytes});
        }
        return Region{block->address, bytes};
    }
    uint64_t UpdateScalar(UpdateScalarKind kind, double parameter) override {
        if (!scalars_) {
            Block* block = Allocate(UpdateScalars::kMost * sizeof(float));
            auto* const floats = reinterpret_cast<float*>(block->data());
            scalars_.emplace(std::span(floats, UpdateScalars::kMost), block->address);
        }
        return scalars_->Address(kind, parameter);
    }
    // Sets the numbers of the update that Run() executes.
    void SetUpdate(const UpdateNumbers& update) { update_ = update; }
    Result<const gpu::Kernel*> Kernel(std::string_view shader, std::span<const uint32_t> constants,
                                      uint32_t args_bytes, uint32_t subgroup) override {
        std::string key(shader);
        for (const uint32_t value : constants) key += " " + std::to_string(value);
        // All tests of a program share kernels, because compiling them takes most of the time.
        auto& kernels = weft::test::kSharedObjects->Get(
            "kernels", [] { return std::map<std::string, std::unique_ptr<gpu::Kernel>>(); });
        auto& kernel = kernels[key + " of " + std::to_string(subgroup)];
        if (kernel == nullptr) {
            const auto spirv = shaders::Find(shader);
            if (spirv.empty()) {
                return MakeError(ErrorCode::kUnsupported, "no shader {} in this build", shader);
            }
            WEFT_ASSIGN(kernel, device_->MakeKernel({.name = shader,
                                                     .spirv = spirv,
                                                     .args_bytes = args_bytes,
                                                     .constants = constants,
                                                     .subgroup = subgroup}));
        }
        return kernel.get();
    }
    void Emit(Dispatch dispatch) override { dispatches_.push_back(std::move(dispatch)); }

    // ---- Values
    void set_reference(bool reference) { reference_ = reference; }
    void set_arithmetic(const Arithmetic& arithmetic) { arithmetic_ = arithmetic; }

    // Makes the lowerings choose as for a device of this kind.
    void set_kind(gpu::Kind kind) { about_.kind = kind; }

    // Adds a value of float32 or int32 with these contents, or all NaN (as an int, an invalid id).
    ValueId AddFloats(const program::Shape& shape, std::span<const float> contents = {},
                      program::Storage storage = program::Storage::kActivation) {
        return Add(shape, DType::kF32, std::as_bytes(contents), storage);
    }
    // Adds a value of any type with these contents, or all bytes 0xff.
    ValueId AddValues(const program::Shape& shape, DType dtype,
                      std::span<const std::byte> contents = {},
                      program::Storage storage = program::Storage::kActivation) {
        return Add(shape, dtype, contents, storage);
    }
    // The same from floats, rounded to nearest even. kF32, kBF16 or kF16.
    ValueId AddRounded(const program::Shape& shape, DType dtype, std::span<const float> contents,
                       program::Storage storage = program::Storage::kActivation) {
        if (dtype == DType::kF32) return AddFloats(shape, contents, storage);
        std::vector<uint16_t> halves(contents.size());
        std::ranges::transform(contents, halves.begin(), [&](float x) {
            return dtype == DType::kBF16 ? F32ToBF16(x) : F32ToF16(x);
        });
        return Add(shape, dtype, std::as_bytes(std::span(halves)), storage);
    }
    // Adds elements [begin, ...) of a value whose shape has neither T nor R, as a separate value
    // (Storage::kView).
    ValueId AddView(const program::Shape& shape, ValueId base, int64_t begin) {
        const DType dtype = program_.value(base).dtype;
        const ValueId id = program_.AddValue({"view" + std::to_string(program_.values.size()),
                                              dtype,
                                              shape,
                                              program::Storage::kView,
                                              {},
                                              base,
                                              begin});
        views_[id] = {base, begin};
        return id;
    }
    ValueId AddInts(const program::Shape& shape, std::span<const int32_t> contents = {}) {
        return Add(shape, DType::kI32, std::as_bytes(contents), program::Storage::kActivation);
    }
    // Adds a vector as a weight: float32.
    ValueId AddVector(std::span<const float> contents) {
        return AddFloats({static_cast<int64_t>(contents.size())}, contents,
                         program::Storage::kWeight);
    }
    // Adds a weight [rows, cols] or [matrices, rows, cols], packed from rows of the file format.
    ValueId AddWeight(DType dtype, const program::Shape& shape, std::span<const std::byte> rows) {
        const ValueId id = program_.AddValue({"weight" + std::to_string(program_.values.size()),
                                              dtype, shape, program::Storage::kWeight});
        WeightPlace place{dtype, shape.rank == 3 ? shape[0] : 1, shape[shape.rank - 2],
                          shape[shape.rank - 1], 0};
        const int64_t count = place.matrices * place.rows;
        const WeightLayout layout = LayoutOf(dtype, count, place.cols);
        Block* block = Allocate(layout.bytes);
        place.address = block->address;
        const auto row_bytes = static_cast<size_t>(RowBytes(dtype, place.cols));
        for (int64_t row = 0; row < count; ++row) {
            std::array<std::byte*, WeightLayout::kMostPlanes> out{};
            for (size_t p = 0; p < layout.count; ++p) {
                out[p] = block->data() + layout.planes[p].offset +
                         static_cast<uint64_t>(row) * layout.planes[p].row_bytes;
            }
            PackRow(dtype, place.cols, rows.data() + static_cast<size_t>(row) * row_bytes,
                    {out.data(), layout.count});
        }
        if (layout.table_bytes != 0) PackTable(dtype, block->data() + layout.table_offset);
        weights_[id] = place;
        return id;
    }
    void SetWeightType(ValueId id, DType dtype) { weights_.at(id).dtype = dtype; }
    // Adds a cache of `pages` pages, with all bytes 0xff (NaN) at first.
    ValueId AddCache(CachePlace place, int64_t pages) {
        const ValueId id = program_.AddValue(
            {"cache" + std::to_string(program_.values.size()), place.dtype,
             program::Shape{place.kv_heads, place.head_dim}, program::Storage::kState});
        Block* block = Allocate(static_cast<uint64_t>(place.PageBytes() * pages));
        place.address = block->address;
        place.pages = pages;
        values_[id] = block;
        caches_[id] = place;
        return id;
    }
    std::span<std::byte> CacheBytes(ValueId id) {
        return {values_.at(id)->data(), values_.at(id)->bytes};
    }

    void SetStep(StepContents step) {
        for (size_t s = 0; s < step.sequences.size(); ++s) {
            const SequenceEntry& entry = step.sequences[s];
            if (step.row_sequence.size() < static_cast<size_t>(entry.row_begin + entry.row_count)) {
                step.row_sequence.resize(static_cast<size_t>(entry.row_begin + entry.row_count),
                                         static_cast<int32_t>(s));
            }
        }
        const bool make_blocks = step.blocks.empty();
        for (size_t s = 0; make_blocks && s < step.sequences.size(); ++s) {
            const SequenceEntry& entry = step.sequences[s];
            for (int32_t row = 0; row < entry.row_count; row += kBlockRows) {
                step.blocks.push_back({static_cast<int32_t>(s), entry.row_begin + row,
                                       std::min(kBlockRows, entry.row_count - row)});
            }
        }
        shape_.sequences = static_cast<int32_t>(step.sequences.size());
        shape_.blocks = static_cast<int32_t>(step.blocks.size());
        tables_.tokens = Table(step.tokens);
        tables_.positions = Table(step.positions);
        tables_.output_rows = Table(step.output_rows);
        tables_.row_sequence = Table(step.row_sequence);
        tables_.sequences = Table(step.sequences);
        tables_.blocks = Table(step.blocks);
        tables_.pages = Table(step.pages);
        tables_.copies = Table(step.copies);
        tables_.token_order = Table(step.token_order);
    }
    void set_shape(const StepShape& shape) { shape_ = shape; }

    // ---- Running
    // Appends the op to the Program and lowers it.
    template <typename Attributes>
    Status Lower(const Attributes& attributes, std::vector<ValueId> inputs,
                 std::vector<ValueId> outputs) {
        program_.ops.push_back({attributes, std::move(inputs), std::move(outputs)});
        const program::Op op = program_.ops.back();
        return on_gpu::Lower(static_cast<Emitter&>(*this), op, op.template as<Attributes>());
    }
    // Appends an op without lowering it; returns its number.
    template <typename Attributes>
    size_t AddOp(const Attributes& attributes, std::vector<ValueId> inputs,
                 std::vector<ValueId> outputs) {
        program_.ops.push_back({attributes, std::move(inputs), std::move(outputs)});
        return program_.ops.size() - 1;
    }
    Status LowerNumber(size_t op) { return LowerOp(*this, program_.ops[op]); }
    // Runs the dispatches emitted since the last run, in order, with a barrier after each. A
    // dispatch that can be split runs in two parts.
    Status Run(bool check_writes = true) {
        const std::vector<Dispatch> dispatches = std::exchange(dispatches_, {});
        if (scalars_) scalars_->Fill(update_);
        WEFT_ASSIGN(std::unique_ptr<gpu::Commands> commands, device_->Record());
        for (const Dispatch& d : dispatches) {
            const uint32_t parts = std::min(2u, d.MostParts());
            for (uint32_t i = 0; i < parts; ++i) {
                commands->Run(*d.kernel, {d.args.data(), d.args_bytes}, d.Part(i, parts));
                commands->Barrier();
            }
        }
        WEFT_TRY(commands->End());
        std::vector<std::vector<std::byte>> before;
        for (const Block& block : blocks_) {
            if (check_writes) before.emplace_back(block.begin(), block.begin() + block.whole());
        }
        WEFT_ASSIGN(const uint64_t submission, device_->Submit(*commands));
        WEFT_TRY(device_->Wait(submission, Deadline::In(120'000)));
        for (size_t b = 0; b < before.size(); ++b) {
            WEFT_TRY(CheckBlock(blocks_[b], before[b], dispatches));
        }
        return {};
    }
    size_t dispatch_count() const { return dispatches_.size(); }
    std::vector<Dispatch> TakeDispatches() { return std::exchange(dispatches_, {}); }
    gpu::Device& device() { return *device_; }

    // The whole value, with the number of rows from the shape.
    std::vector<float> Floats(ValueId id) const { return All<float>(id); }
    std::vector<int32_t> Ints(ValueId id) const { return All<int32_t>(id); }
    // A value of kF32, kBF16 or kF16, converted to floats.
    std::vector<float> Widened(ValueId id) const {
        const DType dtype = program_.value(id).dtype;
        if (dtype == DType::kF32) return All<float>(id);
        std::vector<float> floats;
        for (const uint16_t bits : All<uint16_t>(id)) {
            floats.push_back(dtype == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits));
        }
        return floats;
    }
    void Fill(ValueId id, std::span<const float> contents) {
        std::memcpy(values_.at(id)->data(), contents.data(), contents.size_bytes());
    }
    void Poison(ValueId id) { std::memset(values_.at(id)->data(), 0xff, values_.at(id)->bytes); }
    // The bytes at an address in a value, a scratch buffer or a table.
    std::span<std::byte> Bytes(Region region) {
        for (Block& block : blocks_) {
            if (region.address >= block.address &&
                region.address + region.bytes <= block.address + block.bytes) {
                return {block.data() + (region.address - block.address), region.bytes};
            }
        }
        return {};
    }

  private:
    struct Block {
        gpu::Buffer buffer;
        uint64_t address = 0, bytes = 0;  // without the guards
        std::byte* begin() const { return buffer.host(); }
        std::byte* data() const { return buffer.host() + kGuardBytes; }
        uint64_t whole() const { return buffer.size_bytes(); }
    };

    // Host memory, all 0xff: NaN.
    Block* Allocate(uint64_t bytes) {
        const uint64_t padded = (bytes + 255) / 256 * 256 + 2 * kGuardBytes;
        auto buffer = device_->Allocate(padded, gpu::Place::kHost);
        WEFT_CHECK(buffer.ok());
        Block& block = blocks_.emplace_back();
        block.buffer = std::move(*buffer);
        block.address = block.buffer.address() + kGuardBytes;
        block.bytes = bytes;
        std::memset(block.buffer.host(), 0xff, padded);
        return &block;
    }
    ValueId Add(const program::Shape& shape, DType dtype, std::span<const std::byte> contents,
                program::Storage storage) {
        const ValueId id = program_.AddValue(
            {"v" + std::to_string(program_.values.size()), dtype, shape, storage});
        const int64_t count = shape.Elements(shape_.rows, shape_.outputs);
        Block* block = Allocate(static_cast<uint64_t>(weft::RowBytes(dtype, count)));
        WEFT_CHECK(contents.empty() || contents.size() == block->bytes);
        if (!contents.empty()) std::memcpy(block->data(), contents.data(), contents.size());
        values_[id] = block;
        return id;
    }
    template <typename T>
    uint64_t Table(const std::vector<T>& entries) {
        Block* block = Allocate(entries.size() * sizeof(T));
        if (!entries.empty()) {
            std::memcpy(block->data(), entries.data(), entries.size() * sizeof(T));
        }
        return block->address;
    }
    template <typename T>
    std::vector<T> All(ValueId id) const {
        const Block* block = values_.at(id);
        std::vector<T> out(block->bytes / sizeof(T));
        std::memcpy(out.data(), block->data(), out.size() * sizeof(T));
        return out;
    }
    Status CheckBlock(const Block& block, const std::vector<std::byte>& before,
                      const std::vector<Dispatch>& dispatches) const {
        for (uint64_t i = 0; i < before.size(); ++i) {
            if (block.begin()[i] == before[i]) continue;
            const uint64_t at = block.buffer.address() + i;
            bool said = false;
            for (const Dispatch& d : dispatches) {
                for (const Region& region : d.writes) {
                    said |= at >= region.address && at < region.address + region.bytes;
                }
            }
            if (!said) {
                return MakeError(ErrorCode::kCorrupt,
                                 "byte {} of a value of {} was written; no dispatch says so",
                                 static_cast<int64_t>(i) - static_cast<int64_t>(kGuardBytes),
                                 block.bytes);
            }
        }
        return {};
    }

    std::shared_ptr<gpu::Device> device_;
    gpu::Description about_;
    program::Program program_;
    StepShape shape_;
    StepTables tables_;
    bool reference_ = false;
    Arithmetic arithmetic_;
    std::deque<Block> blocks_;
    std::map<ValueId, Block*> values_;
    std::map<ValueId, std::pair<ValueId, int64_t>> views_;
    std::map<ValueId, WeightPlace> weights_;
    std::map<ValueId, CachePlace> caches_;
    std::map<std::string, Block*> scratch_, constants_;
    std::vector<Dispatch> dispatches_;
    std::optional<UpdateScalars> scalars_;
    UpdateNumbers update_;
};

}  // namespace weft::backend::on_gpu::test
