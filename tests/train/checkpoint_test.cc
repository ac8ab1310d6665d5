// Checkpoints written by any ranks are readable by any other ranks.
#include "train/checkpoint/reader.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint_case.h"
#include "model_files/content.h"
#include "support/flip_bit.h"
#include "support/partial_file.h"
#include "support/temp_dir.h"
#include "support/tiny_adapter.h"
#include "support/tiny_gguf.h"
#include "train/checkpoint/source.h"
#include "train/lora/lora_source.h"
#include "train/settings.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;
using test::TempDir;

TEST(TensorRegion, RunsAndCoverAreThoseOfEveryElement) {
    std::mt19937 random(1);
    for (int round = 0; round < 300; ++round) {
        const Array array{"k", "t", 1 + Draw(random, 6), 1 + Draw(random, 6), SafeType::kF32};
        const auto of_a = CutUp(random, array), of_b = CutUp(random, array);
        EXPECT_TRUE(Cover(of_a, array));
        for (const TensorRegion& a : of_a) {
            std::vector<TensorRegion> without = of_a;
            std::erase(without, a);
            EXPECT_FALSE(Cover(without, array));
            // Regions of two different cuts together: each fills the other's gaps.
            without.insert(without.end(), of_b.begin(), of_b.end());
            EXPECT_TRUE(Cover(without, array));
            const std::vector<float> expected = Values(array, 0, a);
            std::vector<float> got(expected.size(), -1);
            for (const TensorRegion& b : of_b) {
                const std::vector<float> from = Values(array, 0, b);
                int64_t end_a = -1, end_b = -1;
                ForEachRun(a, b, [&](int64_t at_a, int64_t at_b, int64_t count) {
                    EXPECT_GT(count, 0);
                    EXPECT_FALSE(at_a == end_a && at_b == end_b) << "two runs that are one";
                    end_a = at_a + count, end_b = at_b + count;
                    ASSERT_LE(end_a, a.elements());
                    ASSERT_LE(end_b, b.elements());
                    std::copy_n(from.begin() + at_b, count, got.begin() + at_a);
                });
            }
            EXPECT_EQ(got, expected);
        }
    }
}

TEST(Checkpoint, AnyCutsAreReadByAnyOthers) {
    std::mt19937 random(2);
    const test::TempDir dir;
    for (int round = 0; round < 40; ++round) {
        std::vector<std::vector<Cut>> by_rank(1 + static_cast<size_t>(Draw(random, 4)));
        std::vector<Array> arrays;
        for (int i = 0; i < 3; ++i) {
            // The last array has several checksums; the others share one.
            const bool large = i == 2 && round % 4 == 0;
            const int64_t rows = 1 + Draw(random, large ? 900 : 20);
            arrays.push_back({i == 0 ? "weight" : "adam_m", "t" + std::to_string(i), rows,
                              large ? 800 : 1 + Draw(random, 20), SafeType::kF32});
            for (const TensorRegion& region : CutUp(random, arrays.back())) {
                const auto rank = static_cast<size_t>(Draw(random, std::ssize(by_rank) - 1));
                by_rank[rank].push_back({arrays.back(), region});
                if (Draw(random, 4) == 0) by_rank[0].push_back({arrays.back(), region});
            }
        }
        std::erase_if(by_rank, [](const auto& cuts) { return cuts.empty(); });
        SavingJob job(dir.path());
        ASSERT_TRUE(job.Save(round, by_rank).ok());
        const auto newest = OpenNewest(dir.path());
        ASSERT_TRUE(newest.checkpoint);
        EXPECT_EQ(newest.checkpoint->manifest().step, round);
        EXPECT_EQ(newest.checkpoint->manifest().state.at("step"), round);
        for (const Array& array : arrays) {
            for (const TensorRegion& region : CutUp(random, array)) {
                std::vector<float> got(static_cast<size_t>(region.elements()), -1);
                const Status read = newest.checkpoint->Read(array.kind, array.tensor, region, got);
                ASSERT_TRUE(read.ok()) << read.error().message;
                ASSERT_EQ(got, Values(array, round, region));
            }
        }
    }
}

// Matrices of a stack, whole or cut by columns, and with ZeRO's range of them, are one region.
TEST(TensorRegion, AdjacentMatricesAreOneRegion) {
    std::mt19937 random(3);
    for (int round = 0; round < 200; ++round) {
        const int64_t matrices = 1 + Draw(random, 5), rows = 1 + Draw(random, 4);
        const Array array{"k", "t", matrices * rows, 2 + Draw(random, 6), SafeType::kF32};
        const int64_t begin = Draw(random, array.cols - 1);
        const int64_t cols = 1 + Draw(random, array.cols - begin - 1);
        const int64_t all = matrices * rows * cols;
        const int64_t first = Draw(random, all - 1),
                      end = first + 1 + Draw(random, all - first - 1);
        std::vector<TensorRegion> joined;
        std::vector<float> expected;
        for (int64_t i = 0; i < matrices; ++i) {
            TensorRegion matrix{i * rows, rows, begin, cols, 0, 0};
            matrix.begin = std::clamp(first - i * rows * cols, int64_t{0}, rows * cols);
            matrix.end = std::clamp(end - i * rows * cols, int64_t{0}, rows * cols);
            if (matrix.begin == matrix.end) continue;
            const std::vector<float> own = Values(array, 0, matrix);
            expected.insert(expected.end(), own.begin(), own.end());
            if (joined.empty() || !Extend(joined.back(), matrix)) joined.push_back(matrix);
        }
        ASSERT_EQ(joined.size(), 1u);
        EXPECT_TRUE(IsInside(joined[0], array));
        EXPECT_EQ(Values(array, 0, joined[0]), expected);
        // Other columns, a gap, or what is below a cut end.
        for (TensorRegion other :
             {TensorRegion{joined[0].row_count + joined[0].row_begin, 1, begin + 1, cols, 0, cols},
              TensorRegion{joined[0].row_count + joined[0].row_begin + 1, 1, begin, cols, 0,
                           cols}}) {
            EXPECT_FALSE(Extend(joined[0], other));
        }
    }
}

// A checkpoint that could not be read again is not written, and older checkpoints stay.
TEST(Checkpoint, WhatIsWrittenCanBeRead) {
    const test::TempDir dir;
    SavingJob job(dir.path());
    ASSERT_TRUE(job.Save(1, TwoRanks(), 1).ok());
    // The checksums of 8 TiB make a header that is too long.
    const Array large{"weight", "t", int64_t{1} << 21, int64_t{1} << 20, SafeType::kF32};
    const auto read = [](int64_t, std::span<std::byte>) -> Status {
        return MakeError(ErrorCode::kDenied, "nothing is read");
    };
    RankWriter writer(dir.path(), 3);
    ASSERT_TRUE(writer.Start(2, {{large, TensorRegion::Whole(large), {}, read}}).ok());
    const auto file = writer.Finish();
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(file.error().message.find("could not be read again"), std::string::npos)
        << file.error().message;
    // A file that is damaged before the manifest is written, and one that is missing in an array.
    auto damaged = job.Write(3, TwoRanks());
    ASSERT_TRUE(damaged.ok());
    fs::resize_file(fs::path(StepFolder(dir.path(), 3)) / damaged->files[1].name, 100);
    auto partial = job.Write(4, {TwoRanks()[0]});
    ASSERT_TRUE(partial.ok());
    for (const Manifest& manifest : {*damaged, *partial}) {
        const Status committed = CommitCheckpoint(dir.path(), manifest, 1);
        ASSERT_FALSE(committed.ok());
        EXPECT_NE(committed.error().message.find("can't be read"), std::string::npos);
        EXPECT_EQ(OpenNewest(dir.path()).checkpoint->manifest().step, 1);
    }
    // (Another rank's disk may have its file.)
    auto elsewhere = job.Write(5, TwoRanks());
    ASSERT_TRUE(elsewhere.ok());
    fs::remove(fs::path(StepFolder(dir.path(), 5)) / elsewhere->files[1].name);
    EXPECT_TRUE(CommitCheckpoint(dir.path(), *elsewhere, 0).ok());
}

TEST(Checkpoint, OtherTypesAreKeptAsTheyAre) {
    const test::TempDir dir;
    const Array scales{"adam_v_scale", "t", 1, 5, SafeType::kU8};
    const uint8_t bytes[] = {1, 2, 3, 255, 0};
    RankWriter writer(dir.path(), 0);
    ASSERT_TRUE(
        writer.Start(7, {{scales, TensorRegion::Whole(scales), std::as_bytes(std::span(bytes))}})
            .ok());
    const auto file = writer.Finish();
    ASSERT_TRUE(file.ok()) << file.error().message;
    Manifest manifest;
    manifest.step = 7;
    manifest.files = {*file};
    manifest.arrays = {scales};
    ASSERT_TRUE(CommitCheckpoint(dir.path(), manifest, 0).ok());
    const auto checkpoint = Checkpoint::Open(StepFolder(dir.path(), 7));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    std::byte got[3];
    ASSERT_TRUE(checkpoint->Read(scales, {0, 1, 2, 3, 0, 3}, got).ok());
    EXPECT_EQ(static_cast<int>(got[1]), 255);
    float as_float[5];
    EXPECT_EQ(
        checkpoint->Read("adam_v_scale", "t", TensorRegion::Whole(scales), as_float).error().code,
        ErrorCode::kCorrupt);
    Array other = scales;
    other.cols = 6;
    std::byte six[6];
    EXPECT_EQ(checkpoint->Read(other, TensorRegion::Whole(other), six).error().code,
              ErrorCode::kCorrupt);
    other.kind = "adam_w";
    EXPECT_EQ(checkpoint->Read(other, TensorRegion::Whole(other), six).error().code,
              ErrorCode::kNotFound);
}

std::vector<std::string> StepsIn(const std::string& dir) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir + "/checkpoints")) {
        names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    return names;
}

TEST(Checkpoint, TheLastOnesAreKept) {
    const test::TempDir dir;
    SavingJob job(dir.path());
    for (int64_t step = 10; step <= 40; step += 10) ASSERT_TRUE(job.Save(step, TwoRanks(), 0).ok());
    // An incomplete save, and a newer save of an older step: the latter is the newest.
    ASSERT_TRUE(job.Write(35, TwoRanks()).ok());
    fs::create_directories(dir / "checkpoints/another-folder");
    ASSERT_TRUE(job.Save(20, TwoRanks(), 3).ok());
    EXPECT_EQ(StepsIn(dir.path()), (std::vector<std::string>{"another-folder", "step-00000020",
                                                             "step-00000030", "step-00000040"}));
    const auto newest = OpenNewest(JobFolderOf(dir / "checkpoints"));
    ASSERT_TRUE(newest.checkpoint);
    EXPECT_EQ(newest.checkpoint->manifest().step, 20);
    EXPECT_EQ(ReadAll(*newest.checkpoint), "");
    const auto files = fs::directory_iterator(StepFolder(dir.path(), 20));
    EXPECT_EQ(std::distance(begin(files), end(files)), 3) << "the earlier save's files are there";
    ASSERT_TRUE(job.Save(21, TwoRanks(), 1).ok());
    EXPECT_EQ(StepsIn(dir.path()), (std::vector<std::string>{"another-folder", "step-00000021"}));
}

// Read by several threads, any of which may find the damage.
TEST(Checkpoint, ALargeOneIsReadInParts) {
    const test::TempDir dir;
    const Array array{"weight", "wide", 3001, 3003, SafeType::kF32};
    TensorRegion low = TensorRegion::Whole(array), high = low;
    low.end = high.begin = 4'000'001;
    SavingJob job(dir.path());
    ASSERT_TRUE(job.Save(7, {{{array, low}}, {{array, high}}}).ok());
    const auto checkpoint = Checkpoint::Open(StepFolder(dir.path(), 7));
    ASSERT_TRUE(checkpoint.ok());
    for (TensorRegion region :
         {TensorRegion::Whole(array), TensorRegion{1, 2999, 2, 2800, 100, 8'000'000}}) {
        std::vector<float> got(static_cast<size_t>(region.elements()), -1);
        ASSERT_TRUE(checkpoint->Read("weight", "wide", region, got).ok());
        EXPECT_TRUE(got == Values(array, 7, region));
    }
    for (const auto& file : checkpoint->manifest().files) {
        const std::string path = StepFolder(dir.path(), 7) + "/" + file.name;
        std::fstream damaged(path, std::ios::in | std::ios::out | std::ios::binary);
        damaged.seekg(static_cast<std::streamoff>(file.bytes) - 5);
        const auto was = static_cast<char>(damaged.get());
        damaged.seekp(static_cast<std::streamoff>(file.bytes) - 5);
        damaged.put(static_cast<char>(was ^ 1));
        damaged.close();
        std::vector<float> got(static_cast<size_t>(array.rows * array.cols));
        const Status read = checkpoint->Read("weight", "wide", TensorRegion::Whole(array), got);
        ASSERT_FALSE(read.ok());
        EXPECT_NE(read.error().message.find(path), std::string::npos) << read.error().message;
        damaged.open(path, std::ios::in | std::ios::out | std::ios::binary);
        damaged.seekp(static_cast<std::streamoff>(file.bytes) - 5);
        damaged.put(was);
    }
}

// Many ranks wrote it, and one reads it under a soft limit that is too low for their files.
TEST(Checkpoint, MayHaveMoreFilesThanTheSoftLimit) {
    const test::TempDir dir;
    constexpr int64_t kRanks = 200;
    const Array array{"weight", "rows", kRanks, 2, SafeType::kF32};
    std::vector<std::vector<Cut>> ranks;
    for (int64_t row = 0; row < kRanks; ++row) ranks.push_back({{array, {row, 1, 0, 2, 0, 2}}});
    ASSERT_TRUE(SavingJob(dir.path()).Save(3, ranks).ok());
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    if (before.rlim_max < 2000) GTEST_SKIP() << "at most " << before.rlim_max << " descriptors";
    const rlimit low{kRanks / 2, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
    const std::string fault = OpenAndReadAll(StepFolder(dir.path(), 3));
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(fault, "");
}

TEST(Checkpoint, TheStateIsAnObject) {
    const test::TempDir dir;
    auto manifest = SavingJob(dir.path()).Write(3, TwoRanks());
    ASSERT_TRUE(manifest.ok());
    for (const nlohmann::json& state : {nlohmann::json(), nlohmann::json::array({1})}) {
        manifest->state = state;
        const auto parsed = ParseManifest(ManifestText(*manifest), "here");
        ASSERT_FALSE(parsed.ok());
        EXPECT_EQ(parsed.error().code, ErrorCode::kCorrupt);
        EXPECT_EQ(parsed.error().message, "here: its state is not an object");
    }
}

// Weights from the checkpoint, all else from the model's file.
TEST(Checkpoint, IsAModelToRead) {
    const test::TempDir dir;
    support::WriteTinyGguf(dir / "tiny.gguf",
                           {.hyper = support::OddHyper(), .dtype = DType::kQ8_0});
    const auto source = model_files::OpenModel(dir / "tiny.gguf");
    ASSERT_TRUE(source.ok()) << source.error().message;
    const model_files::TensorInfo& first = (*source)->tensors()[1];
    const Array array{kWeightKind, first.name, first.rows, first.cols, SafeType::kF32};
    SavingJob job(dir.path());
    auto manifest = job.Write(5, {{{array, TensorRegion::Whole(array)}}});
    ASSERT_TRUE(manifest.ok());
    manifest->model = model_files::ReadIdentity(**source).value();
    ASSERT_TRUE(CommitCheckpoint(dir.path(), *manifest, 0).ok());
    const auto checkpoint = Checkpoint::Open(StepFolder(dir.path(), 5));
    ASSERT_TRUE(checkpoint.ok());
    EXPECT_TRUE(CheckModel(**source, *checkpoint).ok());
    const auto model = CheckpointSource::Make(**source, *checkpoint);
    ASSERT_TRUE(model.ok()) << model.error().message;
    for (const model_files::TensorInfo& tensor : model->tensors()) {
        const auto got = model->ReadFloats(tensor);
        ASSERT_TRUE(got.ok()) << got.error().message;
        const bool trained = tensor.name == first.name;
        const auto* was = (*source)->FindTensor(tensor.name);
        EXPECT_EQ(*got, trained ? Values(array, 5, TensorRegion::Whole(array))
                                : (*source)->ReadFloats(*was).value());
    }
    ASSERT_TRUE(job.Save(6, {{{array, TensorRegion::Whole(array)}}}).ok());
    const auto other = Checkpoint::Open(StepFolder(dir.path(), 6));
    EXPECT_EQ(CheckModel(**source, *other).error().code, ErrorCode::kDenied);
}

// 'weft pull --shard' downloads a part of the files, of which only the header can be compared.
TEST(Checkpoint, OfWholeFilesIsOfAPartOfThemToo) {
    const TempDir dir;
    for (const char* name : {"whole.gguf", "part.gguf"}) {
        support::WriteTinyGguf(dir / name, {.hyper = support::OddHyper()});
    }
    support::WriteTinyGguf(dir / "other.gguf", {.hyper = support::OddHyper(), .rope_base = 20000});
    support::MakePartial(dir / "part.gguf");
    support::MakePartial(dir / "other.gguf");
    const auto open = [&](const char* name) { return model_files::OpenModel(dir / name).value(); };
    SavingJob job(dir.path());
    int64_t step = 0;
    const auto fits = [&](const char* trained, const char* now) {
        auto manifest = job.Write(
            ++step,
            {{{{"k", "w", 4, 4, SafeType::kF32}, TensorRegion::Whole({"k", "w", 4, 4, {}})}}});
        EXPECT_TRUE(manifest.ok());
        manifest->model = model_files::ReadIdentity(*open(trained)).value();
        manifest->fingerprint = open(trained)->Fingerprint().value();
        EXPECT_TRUE(CommitCheckpoint(dir.path(), *manifest, 0).ok());
        const auto checkpoint = Checkpoint::Open(StepFolder(dir.path(), step));
        testing::internal::CaptureStderr();
        const Status fit = CheckModel(*open(now), *checkpoint);
        const std::string log = testing::internal::GetCapturedStderr();
        const bool warns = log.find("compares the metadata and shapes of") != log.npos;
        EXPECT_EQ(warns, fit.ok() && (trained + std::string(now)) != "whole.ggufwhole.gguf");
        return fit.ok();
    };
    EXPECT_TRUE(fits("whole.gguf", "whole.gguf"));
    EXPECT_TRUE(fits("whole.gguf", "part.gguf"));
    EXPECT_TRUE(fits("part.gguf", "part.gguf"));
    EXPECT_TRUE(fits("part.gguf", "whole.gguf"));
    EXPECT_FALSE(fits("whole.gguf", "other.gguf"));
    EXPECT_FALSE(fits("part.gguf", "other.gguf"));
}

TEST(Checkpoint, IsOfAllBytesOfTheAdapterThatItContinues) {
    const TempDir dir;
    support::WriteTinyGguf(dir / "tiny.gguf", {.hyper = support::OddHyper()});
    support::WriteTinyAdapter(dir / "adapter", dir / "tiny.gguf", {});
    const auto identity = [&] {
        LoraOptions words;
        words.from = dir / "adapter";
        const auto source = WithAdapters(model_files::OpenModel(dir / "tiny.gguf").value(), words);
        return model_files::ReadIdentity(**source).value();
    };
    const std::string before = identity();
    EXPECT_EQ(identity(), before);
    support::FlipBit(dir / "adapter/adapter_model.safetensors");
    EXPECT_NE(identity(), before);
}

// Earlier builds stored a hash of samples, which cannot be compared with anything.
TEST(Checkpoint, OfAnEarlierBuildIsOfAnyModel) {
    const TempDir dir;
    support::WriteTinyGguf(dir / "tiny.gguf", {.hyper = support::OddHyper()});
    const auto source = model_files::OpenModel(dir / "tiny.gguf");
    const Array array{kWeightKind, "w", 4, 4, SafeType::kF32};
    SavingJob job(dir.path());
    ASSERT_TRUE(job.Save(5, {{{array, TensorRegion::Whole(array)}}}).ok());
    const std::string path = StepFolder(dir.path(), 5) + "/" + kManifestName;
    Json manifest = Json::parse(ReadTextFile(path).value());
    manifest["model"] = manifest["model_identity"];
    manifest.erase("model_identity");
    manifest.erase("sha256");
    const std::string text = manifest.dump();
    manifest["sha256"] = Hex(Sha256(std::as_bytes(std::span(text))));
    std::ofstream(path) << manifest.dump();
    const auto checkpoint = Checkpoint::Open(StepFolder(dir.path(), 5));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_TRUE(CheckModel(**source, *checkpoint).ok());
}

// Each field of a job is compared with the checkpoint's, or is listed here.
TEST(Settings, EveryFieldIsComparedOrDoesNotMatter) {
    std::set<std::string> other = {
        "kind",
        // In the fingerprint of the model.
        "model", "from_scratch", "lora_from",
        // Compared with the identity of the data and with the loader's fingerprint.
        "data", "data_weights", "longs", "control_tokens", "prompt_type", "data_sequence",
        "sequence", "test_split", "seed", "pack", "shuffle", "skip_bad", "renewed", "day",
        // The sum and the rounding of the same terms; speed; memory.
        "threads", "reference", "device", "micro_batch", "accumulation", "global_batch", "tp", "pp",
        "virtual_stages", "dp", "ep", "cp", "sequence_parallel", "split", "zero", "unit_elements",
        "whole_elements", "overlap", "recompute", "optimizer_folder", "slots", "reward_timeout",
        "reward_workers", "time_ops", "verify_model",
        // Which updates of float16 are skipped.
        "loss_scale", "loss_scale_initial", "loss_scale_window", "loss_scale_first_counts",
        "loss_scale_hysteresis", "loss_scale_refills", "loss_scale_least",
        // Consent of the user.
        "lora_without_dropout", "without_dropout",
        // The schedule's steps and rates follow from these.
        "warmup_ratio", "rate_end_ratio", "decay_ratio",
        // When the job evaluates, saves, shows and ends.
        "steps", "epochs", "eval_every", "early_stopping_patience", "early_stopping_threshold",
        "sample_prompts", "sample_every", "sample_tokens", "sample_temperature", "save_folder",
        "save_every", "keep_last", "keep_best", "resume", "max_restarts", "interrupts", "elastic"};
    const TrainJob job;
    const auto compared = SettingsOf(job, 1);
    const auto all = nlohmann::json::parse(TrainJobToJson(job));
    for (const auto& [name, value] : all.items()) {
        const bool is_other = other.erase(name) > 0;
        EXPECT_NE(compared.contains(name) && name != "lora_from", is_other) << name;
    }
    EXPECT_EQ(other, std::set<std::string>());
}

TEST(Settings, AnotherReferenceIsAnotherLoss) {
    TrainJob job;
    job.data.loss = "dpo";
    TakeDataWords(job);
    const nlohmann::json state = {{"settings", SettingsOf(job, 1)}};
    EXPECT_TRUE(IsSameLoss(state, job));
    job.trainer.preference.ref_model = "/models/other";
    EXPECT_FALSE(IsSameLoss(state, job));
}

TEST(Checkpoint, MissingFolderIsNotAnError) {
    const test::TempDir dir;
    for (const std::string& where : {dir.path(), dir / "none", dir / "checkpoints"}) {
        EXPECT_FALSE(OpenNewest(JobFolderOf(where)).checkpoint);
    }
}

TEST(Checkpoint, ASaveCanBeLeft) {
    const test::TempDir dir;
    const Array array{"weight", "t", 4096, 4096, SafeType::kF32};
    const std::vector<float> data(static_cast<size_t>(array.rows * array.cols));
    {
        RankWriter writer(dir.path(), 0);
        ASSERT_TRUE(
            writer.Start(1, {{array, TensorRegion::Whole(array), std::as_bytes(std::span(data))}})
                .ok());
        EXPECT_TRUE(writer.running());
    }
    for (const auto& entry : fs::recursive_directory_iterator(dir.path())) {
        EXPECT_TRUE(entry.is_directory()) << entry.path();
    }
}

}  // namespace
}  // namespace weft::train
