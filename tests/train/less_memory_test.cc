// Advice for a training job that does not fit: flags with which it fits.
#include "train/less_memory.h"

#include <gtest/gtest.h>

#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "train/trainer.h"

namespace weft::train {
namespace {

// As a user would have them.
TrainerOptions LargeJob() {
    TrainerOptions options;
    options.dtype = DType::kBF16;
    options.recompute = "none";
    options.micro_batch = 4;
    options.accumulation = 3;
    options.sequence = 1024;
    options.grad_dtype = "f32";
    return options;
}

TEST(LessMemory, EachChangeIsOfOneKind) {
    std::vector<std::string> flags;
    for (const Change& change : ChangesOf(LargeJob(), 2)) {
        EXPECT_TRUE(CheckTrainer(change.options).ok()) << change.flags;
        flags.push_back(change.flags);
    }
    const std::vector<std::string> want = {"--recompute full",
                                           "--micro-batch 1 --grad-accum 12",
                                           "--zero 3",
                                           "--grad-dtype bf16",
                                           "--optimizer adam8bit",
                                           "--lora 16",
                                           "--seq-len 512"};
    EXPECT_EQ(flags, want);
}

TEST(LessMemory, SuggestionsWithoutEffectAreOmitted) {
    TrainerOptions small = LargeJob();
    small.recompute = "auto";  // has already tried all modes
    small.micro_batch = 1;
    small.grad_dtype = "bf16";
    small.lora.rank = 8;
    small.sequence = 255;
    EXPECT_TRUE(ChangesOf(small, 1).empty());
    small.lora.rank = 0;
    small.from_scratch = true;  // adapters on random weights make no sense
    const std::vector<Change> changes = ChangesOf(small, 1);
    ASSERT_EQ(changes.size(), 1u);
    EXPECT_EQ(changes[0].options.update.kind, UpdateKind::kAdam8bit);
    TrainerOptions staged = LargeJob();
    staged.pp = 2;  // stages do not shard gradients
    for (const Change& change : ChangesOf(staged, 2)) EXPECT_NE(change.flags, "--zero 3");
}

// A checkpoint has no adapters, and moments of one optimizer; other sequences are other data.
TEST(LessMemory, AJobThatResumesKeepsTheFormOfItsState) {
    TrainerOptions options = LargeJob();
    options.resumes = true;
    const auto flags = [&] {
        std::string all;
        for (const Change& change : ChangesOf(options, 2)) all += change.flags + ", ";
        return all;
    };
    const std::string common =
        "--recompute full, --micro-batch 1 --grad-accum 12, --zero 3, --grad-dtype bf16, ";
    EXPECT_EQ(flags(), common + "--optimizer adam8bit, ");
    options.update.kind = UpdateKind::kAdam;
    EXPECT_EQ(flags(), common);
}

TEST(LessMemory, AShorterSequenceHasRoomForACompletion) {
    TrainerOptions options = LargeJob();
    const auto shorter = [&](int64_t completion) {
        options.grpo.completion_tokens = completion;
        return std::ranges::count(ChangesOf(options, 2), "--seq-len 512", &Change::flags);
    };
    EXPECT_EQ(shorter(0), 1);
    EXPECT_EQ(shorter(511), 1);
    EXPECT_EQ(shorter(512), 0);
}

TEST(LessMemory, TheFewestThatAreEnoughAreNamed) {
    const auto advise = [](auto fits) { return AdviseLessMemory(LargeJob(), 2, fits); };
    EXPECT_EQ(advise([](const TrainerOptions& o) { return o.recompute == "full" || o.lora.on(); }),
              "It fits with --recompute full, or with --lora 16.");
    EXPECT_EQ(advise([](const TrainerOptions& o) { return o.zero == 3 && o.micro_batch == 1; }),
              "It fits with --recompute full --micro-batch 1 --grad-accum 12 --zero 3.");
    EXPECT_EQ(advise([](const TrainerOptions& o) { return o.lora.on() && o.sequence <= 256; }),
              "It fits with --recompute full --micro-batch 1 --grad-accum 12 --zero 3 "
              "--grad-dtype bf16 --optimizer adam8bit --lora 16 --seq-len 256.");
    EXPECT_NE(advise([](const TrainerOptions&) { return false; }).find("No flag makes it fit"),
              std::string::npos);
}

// Attention's backward pass needs scratch memory in each thread for one sequence: 20 bytes for each
// element of K in one head, here 2.5 MiB less for a sequence of 64 rows than for one of 4,096.
TEST(LessMemory, ThreadsNeedScratchForTheLongestSequence) {
    model::Hyper hyper = support::OddHyper();
    hyper.layers = 1, hyper.context = 4096;
    const test::TempDir dir;
    support::WriteTinyGguf(dir / "tiny.gguf", {.hyper = hyper, .dtype = DType::kF32});
    const auto cluster = cluster::Cluster::Launch({}, "").value();
    const auto of_a_thread = [&](int64_t sequence, int64_t sequences) {
        uint64_t bytes[2] = {};
        for (int threads = 1; threads <= 2; ++threads) {
            TrainerOptions options;
            options.model = dir / "tiny.gguf";
            options.recompute = "none";
            options.sequence = sequence;
            options.micro_batch = sequences;
            options.threads = threads;
            const auto trainer = Trainer::Make(options, *cluster);
            EXPECT_TRUE(trainer.ok()) << trainer.error().message;
            if (trainer.ok()) bytes[threads - 1] = (*trainer)->memory().arena_bytes;
        }
        return bytes[1] - bytes[0];
    };
    EXPECT_GT(of_a_thread(4096, 1), of_a_thread(64, 64) + (2 << 20));
}

}  // namespace
}  // namespace weft::train
