// Experts on the drive give the bits of experts in memory, within the memory that they may take.
#include "backend/cpu/expert_store.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <mutex>

#include "program/placement.h"
#include "support/golden_experts.h"
#include "support/loaded_rank.h"
#include "support/nightly.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

class DriveExperts : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        WriteTinyGguf(dir_ / "model.gguf", ExpertGoldenFile(GetParam()));
        source_ = model_files::OpenModel(dir_ / "model.gguf").value();
        model::BuildOptions options;
        options.kv_dtype = DType::kF32;
        program_ = Build(model::ReadHyper(*source_).value(), *source_, {}, options).at(0);
    }
    backend::CpuOptions Cpu(CpuLevel level) const { return {2, {}, true, level}; }
    // The least memory with which the Program compiles.
    uint64_t LeastMemory(CpuLevel level) const {
        backend::CompileOptions options;
        options.max_tokens = options.max_outputs = 64;
        options.kv_pages = 8;
        if (program::SlotBytes(program_) > 0) options.state_slots = 4;
        options.keep = {program_.Find("logits")};
        const auto device = backend::MakeCpuDevice(Cpu(level));
        uint64_t too_few = 0, enough = uint64_t{1} << 28;
        while (enough - too_few > 1 << 16) {
            options.drive_memory = (too_few + enough) / 2;
            (device->Compile({program_}, options).ok() ? enough : too_few) = options.drive_memory;
        }
        return enough;
    }

    test::TempDir dir_;
    std::unique_ptr<model_files::ModelSource> source_;
    program::Program program_;
};

INSTANTIATE_TEST_SUITE_P(All, DriveExperts, testing::ValuesIn(kExpertCases),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(DriveExperts, HaveTheBitsOfExpertsInMemory) {
    const std::string name = GetParam();
    SKIP_TO_NIGHT_UNLESS(name == "gptOss" || name == "deepseekV3" || name == "qwen3nextMoe");
    if (program::ExpertLayersEnd(program_) == 0) GTEST_SKIP() << name << " has no experts";
    const int64_t vocab = program_.value(program_.Find("logits")).shape[1];
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < 23; ++i) tokens.push_back(static_cast<int32_t>((7 * i + 3) % vocab));
    const CpuLevel best = BestCpuLevel(DetectCpu());
    for (const CpuLevel level : {CpuLevel::kReference, best}) {
        LoadedRank memory(program_, *source_, Cpu(level));
        const std::vector<float> want = memory.Logits(tokens, 5);
        const uint64_t least = LeastMemory(level);
        for (const uint64_t limit : {least, least + least / 8, uint64_t{1} << 32}) {
            LoadedRank drive(program_, *source_, Cpu(level), 64, backend::Overlap::kNever, limit);
            const backend::MemoryUse use = drive.executable().memory();
            EXPECT_LE(use.weight_bytes + use.kv_bytes, limit);
            EXPECT_EQ(drive.Logits(tokens, 5), want) << limit << " bytes";
            const backend::DriveUse reads = drive.executable().drive_use();
            EXPECT_GT(reads.misses, 0);
            EXPECT_EQ(drive.Logits(tokens, 23), memory.Logits(tokens, 23)) << limit << " bytes";
        }
    }
}

// A store of stacks in a mapping of its own.
class StoreTest : public testing::Test {
  protected:
    static constexpr int64_t kExperts = 8, kCols = 64, kRows = 64;
    static constexpr int64_t kStride = 4 * backend::kDrivePage;  // kRows * kCols floats

    void SetUp() override {
        data_ = static_cast<std::byte*>(
            ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        for (int layer = 0; layer < 2; ++layer) {
            const kernels::PackedStack stack{
                DType::kF32, kExperts, kRows, kCols, kStride, data_ + layer * kExperts * kStride};
            store_.Add(layer, 10 + layer, stack);
            store_.Load(
                10 + layer,
                [this, layer](int64_t row, int64_t count, std::span<std::byte> out) -> Status {
                    if (fails_) return MakeError(ErrorCode::kIo, "the drive is gone");
                    const std::lock_guard lock(mutex_);
                    reads_.push_back(layer * kExperts + row / kRows);
                    const auto value = static_cast<float>(layer * kExperts + row / kRows + 1);
                    std::fill_n(reinterpret_cast<float*>(out.data()), count * kCols, value);
                    return {};
                });
        }
    }
    void TearDown() override { ::munmap(data_, kBytes); }

    Status Bring(int layer, std::vector<int> experts) {
        std::vector<int32_t> begin(kExperts + 1, 0);
        for (int e = 0; e < kExperts; ++e) {
            const bool chosen = std::ranges::find(experts, e) != experts.end();
            begin[static_cast<size_t>(e) + 1] = begin[static_cast<size_t>(e)] + (chosen ? 1 : 0);
        }
        reads_.clear();
        return store_.Bring(layer, begin.data());
    }
    float At(int layer, int expert) const {
        return *reinterpret_cast<const float*>(data_ + (layer * kExperts + expert) * kStride);
    }
    size_t PagesHere() const {
        std::vector<unsigned char> here(kBytes / backend::kDrivePage);
        EXPECT_EQ(::mincore(data_, kBytes, here.data()), 0);
        return static_cast<size_t>(std::ranges::count_if(here, [](auto c) { return c & 1; }));
    }

    static constexpr int64_t kBytes = 2 * kExperts * kStride;
    static void PackPlain(const kernels::PackedMatrix& matrix, int64_t row, int64_t count,
                          const std::byte* rows, int64_t row_bytes) {
        std::copy_n(rows, count * row_bytes, matrix.data + row * row_bytes);
    }
    std::byte* data_ = nullptr;
    backend::ExpertStore store_{PackPlain, {}};
    std::mutex mutex_;
    std::vector<int64_t> reads_;
    bool fails_ = false;
};

TEST_F(StoreTest, KeepsTheUsedAndDropsTheRest) {
    EXPECT_EQ(store_.TotalBytes(), kBytes);
    EXPECT_EQ(store_.LeastBytes(), kExperts * kStride);
    store_.SetLimit(kExperts * kStride);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(Bring(0, {1, 2}).ok());
    ASSERT_TRUE(Bring(1, {0, 3, 4, 5, 6, 7}).ok());
    EXPECT_EQ(PagesHere(), static_cast<size_t>(kExperts * 4));
    ASSERT_TRUE(Bring(1, {1, 2}).ok());  // drops two of the six, which were used less
    EXPECT_EQ(reads_.size(), 2u);
    ASSERT_TRUE(Bring(0, {1, 2}).ok());
    EXPECT_TRUE(reads_.empty());
    EXPECT_EQ(At(0, 1), 2);
    EXPECT_EQ(At(1, 2), 11);
    ASSERT_TRUE(Bring(1, {0, 1, 2, 3, 4, 5, 6, 7}).ok());  // the whole limit
    for (int e = 0; e < kExperts; ++e) EXPECT_EQ(At(1, e), static_cast<float>(kExperts + e + 1));
    EXPECT_EQ(PagesHere(), static_cast<size_t>(kExperts * 4));
    EXPECT_EQ(At(0, 1), 0);  // dropped
}

TEST_F(StoreTest, AFailedReadLeavesNothingHalfRead) {
    store_.SetLimit(kExperts * kStride);
    fails_ = true;
    EXPECT_EQ(Bring(0, {1, 2}).error().code, ErrorCode::kIo);
    fails_ = false;
    ASSERT_TRUE(Bring(0, {1, 2}).ok());
    EXPECT_EQ(reads_.size(), 2u);
    EXPECT_EQ(At(0, 2), 3);
}

}  // namespace
}  // namespace weft::support
