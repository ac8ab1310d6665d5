// Experts on the drive give the same bits as experts in memory, and use only the allowed memory.
#include "backend/cpu/expert_store.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "program/placement.h"
#include "support/golden_experts.h"
#include "support/loaded_rank.h"
#include "support/nightly.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

class DriveModel {
  protected:
    void Open(const char* name) {
        WriteTinyGguf(dir_ / "model.gguf", ExpertGoldenFile(name));
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

class DriveExperts : public DriveModel, public testing::TestWithParam<const char*> {
    void SetUp() override { Open(GetParam()); }
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
    int64_t ahead = 0;
    for (const CpuLevel level : {CpuLevel::kReference, best}) {
        LoadedRank memory(program_, *source_, Cpu(level));
        const std::vector<float> want = memory.Logits(tokens, 5);
        const uint64_t least = LeastMemory(level);
        for (const uint64_t limit : {least, least + least / 8, uint64_t{1} << 32}) {
            LoadedRank drive(program_, *source_, Cpu(level), 64, backend::Overlap::kNever, limit);
            const backend::MemoryUse use = drive.executable().memory();
            const uint64_t readers = backend::kReaders * uint64_t{backend::kReaderBytes};
            EXPECT_LE(readers + use.weight_bytes + use.kv_bytes + use.arena_bytes, limit);
            EXPECT_EQ(drive.Logits(tokens, 5), want) << limit << " bytes";
            const backend::DriveUse reads = drive.executable().drive_use();
            EXPECT_GT(reads.misses, 0);
            ahead += reads.ahead_used;
            EXPECT_EQ(drive.Logits(tokens, 23), memory.Logits(tokens, 23)) << limit << " bytes";
        }
    }
    if (name == "qwen3nextMoe" || name == "deepseekV3") {
        EXPECT_GT(ahead, 0);
    }
}

// Other ranks wait for a rank that makes progress, so a drive that is asleep must not look like a
// rank that is stuck.
class DriveProgress : public DriveModel, public testing::Test {};
TEST_F(DriveProgress, GrowsWhileAStepWaitsForTheDrive) {
    Open("deepseekV3");
    LoadedRank rank(program_, *source_, Cpu(CpuLevel::kReference), 64, backend::Overlap::kNever,
                    uint64_t{1} << 32);
    backend::Executable& executable = rank.executable();
    std::atomic<bool> asked = false, asleep = true;
    for (const program::Op& op : program_.ops) {
        if (!program::IsOfExperts(op)) continue;
        const program::ValueId id = program::WeightOf(op);
        if (program_.value(id).shape.rank != 3 || program_.value(id).shape[1] == 1) continue;
        ASSERT_TRUE(executable
                        .LoadWeight(id,
                                    [&, id](int64_t row, int64_t count, std::span<std::byte> out) {
                                        asked = true;
                                        asked.notify_all();
                                        asleep.wait(true);
                                        return model::ReadWeight(*source_, program_.value(id), row,
                                                                 count, out, nullptr);
                                    })
                        .ok());
    }
    std::thread step([&] { rank.Logits(std::vector<int32_t>{3, 1, 2}, 3); });
    asked.wait(false);
    const int64_t before = executable.progress();
    EXPECT_GT(executable.progress(), before);
    asleep = false;
    asleep.notify_all();
    step.join();
    const int64_t after = executable.progress();
    EXPECT_EQ(executable.progress(), after) << "no step runs";
}

// Two stacks in a mapping of its own. Expert e of stack s holds the number s * kExperts + e + 1.
class StoreTest : public testing::Test {
  protected:
    static constexpr int64_t kExperts = 8, kCols = 64, kRows = 64;
    static constexpr int64_t kStride = kRows * kCols * 4;  // whole pages of up to 16 KiB
    static constexpr int64_t kBytes = 2 * kExperts * kStride;

    // one_choice: both stacks belong to choice 0. Else stack i is that of choice i.
    void Open(bool one_choice, int64_t timeout_ms = 60'000) {
        data_ = static_cast<std::byte*>(
            ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        store_.emplace(backend::ExpertStore::Options{PackPlain, {}, "model.gguf", timeout_ms});
        for (int i = 0; i < 2; ++i) {
            const kernels::PackedStack stack{DType::kF32, kExperts, kRows,
                                             kCols,       kStride,  data_ + i * kExperts * kStride};
            store_->Add(one_choice ? 0 : i, 10 + i, fmt::format("blk.{}.up_exps", i), stack);
            store_->Load(10 + i, [this, i](int64_t row, int64_t count, std::span<std::byte> out) {
                return Read(i * kExperts + row / kRows, count, out);
            });
        }
        store_->SetLimit(one_choice ? kBytes : kExperts * kStride);
    }
    void TearDown() override {
        store_.reset();
        ::munmap(data_, kBytes);
    }

    Status Read(int64_t matrix, int64_t count, std::span<std::byte> out) {
        std::unique_lock lock(mutex_);
        begun_.push_back(matrix);
        changed_.notify_all();
        changed_.wait(lock, [&] { return std::ranges::find(held_, matrix) == held_.end(); });
        if (fails_) return MakeError(ErrorCode::kIo, "the drive is gone");
        reads_.push_back(matrix);
        changed_.notify_all();
        std::fill_n(reinterpret_cast<float*>(out.data()), count * kCols,
                    static_cast<float>(matrix + 1));
        return {};
    }
    // Reads of these matrices wait.
    void Hold(std::vector<int64_t> matrices) {
        const std::lock_guard lock(mutex_);
        held_ = std::move(matrices);
        changed_.notify_all();
    }
    void AwaitReads(size_t count, bool begun = false) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return (begun ? begun_ : reads_).size() >= count; });
    }

    Status Need(int choice, std::vector<int> experts) {
        std::vector<int32_t> begin(kExperts + 1, 0);
        for (int e = 0; e < kExperts; ++e) {
            const bool chosen = std::ranges::find(experts, e) != experts.end();
            begin[static_cast<size_t>(e) + 1] = begin[static_cast<size_t>(e)] + (chosen ? 1 : 0);
        }
        return store_->Need(choice, begin.data());
    }
    Status Bring(int choice, std::vector<int> experts) {
        {
            const std::lock_guard lock(mutex_);
            reads_.clear();
        }
        Status needed = Need(choice, std::move(experts));
        return needed.ok() ? store_->Await(10 + choice) : needed;
    }
    void ReadAhead(int choice, std::vector<int32_t> experts) { store_->ReadAhead(choice, experts); }
    float At(int stack, int expert) const {
        return *reinterpret_cast<const float*>(data_ + (stack * kExperts + expert) * kStride);
    }
    size_t PagesHere() const {
        std::vector<unsigned char> here(kBytes / backend::DrivePage());
        EXPECT_EQ(::mincore(data_, kBytes, here.data()), 0);
        return static_cast<size_t>(std::ranges::count_if(here, [](auto c) { return c & 1; }));
    }

    static void PackPlain(const kernels::PackedMatrix& matrix, int64_t row, int64_t count,
                          const std::byte* rows, int64_t row_bytes) {
        std::copy_n(rows, count * row_bytes, matrix.data + row * row_bytes);
    }
    std::byte* data_ = nullptr;
    std::optional<backend::ExpertStore> store_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<int64_t> begun_, reads_, held_;  // matrices
    std::atomic<bool> fails_ = false;
};

TEST_F(StoreTest, KeepsTheUsedAndDropsTheRest) {
    Open(false);
    EXPECT_EQ(store_->TotalBytes(), kBytes);
    EXPECT_EQ(store_->LeastBytes(), kExperts * kStride);
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
    Open(false);
    fails_ = true;
    EXPECT_EQ(Bring(0, {1, 2}).error().code, ErrorCode::kIo);
    fails_ = false;
    ASSERT_TRUE(Bring(0, {1, 2}).ok());
    EXPECT_EQ(At(0, 1), 2);
    EXPECT_EQ(At(0, 2), 3);
}

// An op waits for its own stack only: the others are read while it computes.
TEST_F(StoreTest, AnOpDoesNotWaitForOtherStacks) {
    Open(true);
    Hold({kExperts + 1});
    ASSERT_TRUE(Need(0, {1, 2}).ok());
    ASSERT_TRUE(store_->Await(10).ok());
    EXPECT_EQ(At(0, 1), 2);
    EXPECT_EQ(At(0, 2), 3);
    EXPECT_EQ(At(1, 1), 0);
    Hold({});
    ASSERT_TRUE(store_->Await(11).ok());
    EXPECT_EQ(At(1, 1), kExperts + 2);
}

TEST_F(StoreTest, ReadsAhead) {
    Open(false);
    ASSERT_TRUE(Bring(0, {0, 1}).ok());
    ReadAhead(1, {3, 4});
    AwaitReads(4);
    ASSERT_TRUE(Bring(1, {3, 5}).ok());
    EXPECT_EQ(reads_, std::vector<int64_t>{kExperts + 5});
    EXPECT_EQ(At(1, 3), kExperts + 4);
    const backend::DriveUse use = store_->use();
    EXPECT_EQ(use.misses, 4);
    EXPECT_EQ(use.ahead, 2);
    EXPECT_EQ(use.ahead_used, 1);
}

// Reads ahead neither drop what the step needs, nor delay its reads once it knows them.
TEST_F(StoreTest, ReadsAheadGiveWay) {
    Open(false);
    ASSERT_TRUE(Bring(0, {0, 1, 2, 3, 4, 5, 6, 7}).ok());
    ReadAhead(1, {0, 1});  // no room
    EXPECT_EQ(store_->use().ahead, 0);
    ASSERT_TRUE(Bring(0, {0}).ok());
    Hold({8, 9, 10, 11, 12, 13});
    ReadAhead(1, {0, 1, 2, 3, 4, 5, 6});
    AwaitReads(8 + 6, true);  // not all at a time
    ASSERT_TRUE(Bring(0, {0, 1}).ok());
    EXPECT_EQ(begun_.size(), 8u + 6 + (reads_.empty() ? 0 : 1));
    EXPECT_EQ(std::ranges::find(begun_, 14), begun_.end());
    Hold({});
    ASSERT_TRUE(Bring(1, {0, 1, 2, 3, 4, 5, 6, 7}).ok());
    for (int e = 0; e < kExperts; ++e) EXPECT_EQ(At(1, e), static_cast<float>(kExperts + e + 1));
    EXPECT_EQ(PagesHere(), static_cast<size_t>(kExperts * 4));
}

TEST_F(StoreTest, StopsReadingAheadAfterWrongGuesses) {
    Open(false);
    store_->SetLimit(5 * kStride);  // so that a guess of some steps ago is not in memory
    ASSERT_TRUE(Bring(0, {0}).ok());
    int guesses = 0;
    for (int i = 0; i < 400; ++i) {
        if (store_->WantsGuess(1)) {
            ++guesses;
            const int64_t before = store_->use().ahead;
            ReadAhead(1, {2 + i % 6});
            if (store_->use().ahead > before) AwaitReads(1);
        }
        ASSERT_TRUE(Bring(1, {0}).ok());
        ASSERT_TRUE(Bring(0, {0}).ok());
    }
    EXPECT_LT(guesses, 100);
    EXPECT_GT(guesses, 20);
}

TEST_F(StoreTest, ASilentDriveIsAnError) {
    Open(false, 1000);
    Hold({1});
    const Status waited = Bring(0, {1});
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code, ErrorCode::kTimeout);
    EXPECT_NE(waited.error().message.find("model.gguf: the drive gave no data of expert 1 of "
                                          "blk.0.up_exps within 1000 ms"),
              std::string::npos)
        << waited.error().message;
    Hold({});
    AwaitReads(1);
}

TEST_F(StoreTest, BeginsWithTheMostUsedOfEarlierJobs) {
    Open(false);
    store_->SetLimit(kExperts * kStride + 2 * kStride);  // two beside the largest choice
    std::vector<float> first(kExperts, 1), second(kExperts, 0);
    first[5] = 7;
    second[6] = 3;
    store_->Prime(std::vector<backend::ExpertUse>{{10, first}, {11, second}});
    AwaitReads(2);
    std::ranges::sort(reads_);
    EXPECT_EQ(reads_, (std::vector<int64_t>{5, kExperts + 6}));
    ASSERT_TRUE(Bring(0, {5}).ok());
    EXPECT_TRUE(reads_.empty());
    const auto uses = store_->uses();
    ASSERT_EQ(uses.size(), 2u);
    EXPECT_EQ(uses[0].uses[5], 8);
    EXPECT_EQ(uses[1].uses[6], 3);
    EXPECT_EQ(uses[1].uses[0], 0);
}

}  // namespace
}  // namespace weft::support
