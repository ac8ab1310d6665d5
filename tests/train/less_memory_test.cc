// Advice for a training job that does not fit: flags with which it fits.
#include "train/less_memory.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace weft::train
