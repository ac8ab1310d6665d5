// DeepSpeed configuration files: real ones, "auto", every key, contradictions, broken files.
#include "train/config/ds_config.h"
#include "support/paths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "train/data_case.h"

namespace weft::train {
namespace {

const std::string kFolder = support::TestData("/deepspeed/");

DsConfig Read(std::string_view text, const DsFlags& flags = {}) {
    return Must(ParseDsConfig(text, "ds.json", flags));
}

std::string ErrorOf(std::string_view text, const DsFlags& flags = {}) {
    const auto config = ParseDsConfig(text, "ds.json", flags);
    EXPECT_FALSE(config.ok()) << text;
    return config.ok() ? "" : config.error().message;
}

void ExpectError(std::string_view text, std::string_view words, const DsFlags& flags = {}) {
    const std::string error = ErrorOf(text, flags);
    EXPECT_NE(error.find(words), std::string::npos) << text << "\n" << error;
    EXPECT_TRUE(error.starts_with("ds.json")) << error;
}

TEST(DsConfig, UsersFilesRunUnchanged) {
    DsFlags flags;
    flags.ranks = 16;
    flags.hidden_size = 8192;
    flags.micro_batch = 2;
    flags.accumulation = 4;
    const DsConfig large = Must(ReadDsConfig(kFolder + "zero3_70b.json", flags));
    EXPECT_EQ(large.zero.stage, 3);
    EXPECT_EQ(large.zero.reduce_bucket, 8192ll * 8192);
    EXPECT_EQ(large.zero.prefetch_bucket, 60397977);  // int(0.9 * 8192 * 8192)
    EXPECT_EQ(large.zero.persistence_threshold, 81920);
    EXPECT_TRUE(large.zero.gather_weights_on_save);
    EXPECT_EQ(large.zero.overlap_comm, true);
    EXPECT_EQ(large.train_batch, 128);
    EXPECT_EQ(large.micro_batch, 2);
    EXPECT_EQ(large.accumulation, 4);
    EXPECT_EQ(large.clip, 1);
    EXPECT_EQ(large.precision, Precision::kBf16);
    EXPECT_EQ(large.steps_per_print, 10);
    EXPECT_EQ(large.warnings.size(), 0u);

    flags.accumulation.reset();
    flags.precision = Precision::kF16;
    const DsConfig small = Must(ReadDsConfig(kFolder + "zero3_8b.json", flags));
    EXPECT_EQ(small.accumulation, 1);
    EXPECT_EQ(small.train_batch, 32);
    EXPECT_EQ(small.zero.reduce_bucket, 200'000'000);
    EXPECT_EQ(small.zero.allgather_bucket, 200'000'000);
    EXPECT_EQ(small.precision, Precision::kF16);
    EXPECT_EQ(small.steps_per_print, 2000);
    EXPECT_TRUE(small.warnings == large.warnings);
    EXPECT_FALSE(small.optimizer);
    EXPECT_FALSE(small.schedule);
}

TEST(DsConfig, AutoComesFromTheCommandLineElseFromTheTrainer) {
    const std::string text = R"({"optimizer": {"type": "AdamW", "params": {"lr": "auto",
        "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto",
        "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}},
        "gradient_clipping": "auto", "bf16": {"enabled": "auto"}})";
    DsFlags flags;
    flags.total_steps = 500;
    const DsConfig bare = Read(text, flags);
    EXPECT_EQ(bare.optimizer->lr, 5e-5);
    EXPECT_EQ(bare.optimizer->beta2, 0.999);
    EXPECT_EQ(bare.optimizer->weight_decay, 0);
    EXPECT_EQ(bare.clip, 1);
    EXPECT_EQ(bare.precision, Precision::kBf16);
    EXPECT_EQ(*bare.schedule,
              (Schedule{.kind = ScheduleKind::kWarmupDecayLr, .rate = 5e-5, .total_steps = 500}));
    flags.lr = 3e-4;
    flags.beta2 = 0.95;
    flags.eps = 1e-6;
    flags.weight_decay = 0.1;
    flags.clip = 0.5;
    flags.warmup_steps = 20;
    flags.precision = Precision::kF32;
    const DsConfig told = Read(text, flags);
    EXPECT_EQ(told.optimizer->lr, 3e-4);
    EXPECT_EQ(told.optimizer->beta1, 0.9);
    EXPECT_EQ(told.optimizer->beta2, 0.95);
    EXPECT_EQ(told.optimizer->eps, 1e-6);
    EXPECT_EQ(told.optimizer->weight_decay, 0.1);
    EXPECT_EQ(told.clip, 0.5);
    EXPECT_EQ(told.precision, Precision::kF32);
    EXPECT_EQ(told.schedule->warmup_steps, 20);
    EXPECT_EQ(told.schedule->rate, 3e-4);
    ExpectError(R"({"zero_optimization": {"reduce_bucket_size": "auto"}})", "width isn't known");
    ExpectError(R"({"scheduler": {"type": "WarmupDecayLR", "params": {}}})", "total_num_steps");
}

TEST(DsConfig, BatchSizesFollowFromEachOther) {
    const auto sizes = [](std::string_view text, int64_t ranks) {
        DsFlags flags;
        flags.ranks = ranks;
        const DsConfig config = Read(text, flags);
        return std::array{config.train_batch, config.micro_batch, config.accumulation};
    };
    using Sizes = std::array<int64_t, 3>;
    EXPECT_EQ(sizes("{}", 3), (Sizes{3, 1, 1}));
    EXPECT_EQ(sizes(R"({"train_batch_size": 48})", 3), (Sizes{48, 16, 1}));
    EXPECT_EQ(sizes(R"({"train_micro_batch_size_per_gpu": 4})", 3), (Sizes{12, 4, 1}));
    EXPECT_EQ(sizes(R"({"train_batch_size": 48, "train_micro_batch_size_per_gpu": 4})", 3),
              (Sizes{48, 4, 4}));
    EXPECT_EQ(sizes(R"({"train_batch_size": 48, "gradient_accumulation_steps": 2})", 3),
              (Sizes{48, 8, 2}));
    EXPECT_EQ(sizes(R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
                        "train_batch_size": "auto"})",
                    3),
              (Sizes{24, 4, 2}));
    DsFlags flags;
    flags.ranks = 3;
    ExpectError(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4,
                    "gradient_accumulation_steps": 2})",
                "train_batch_size 32 != train_micro_batch_size_per_gpu 4 x "
                "gradient_accumulation_steps 2 x 3 data-parallel ranks = 24",
                flags);
    ExpectError(R"({"train_batch_size": 32})", "x 3 data-parallel ranks = 30", flags);
    ExpectError(R"({"train_batch_size": 2})", "= 0", flags);
    ExpectError(R"({"train_micro_batch_size_per_gpu": 900000000000000,
                    "gradient_accumulation_steps": 900000000000000})",
                "train_micro_batch_size_per_gpu", flags);
    flags.micro_batch = 8;
    ExpectError(R"({"train_micro_batch_size_per_gpu": 4})", "the command line says 8", flags);
}

TEST(DsConfig, OptimizersHaveDeepSpeedsDefaults) {
    const auto kind = [](const std::string& type, const std::string& params) {
        return *Read("{\"optimizer\": {\"type\": \"" + type + "\", \"params\": {" + params + "}}}")
                    .optimizer;
    };
    EXPECT_EQ(kind("Adam", "").kind, UpdateKind::kAdamW);
    EXPECT_EQ(kind("Adam", "\"adam_w_mode\": false").kind, UpdateKind::kAdam);
    EXPECT_EQ(kind("AdamW", "\"adam_w_mode\": false").kind, UpdateKind::kAdamW);
    EXPECT_EQ(kind("AdamW", "").lr, 1e-3);
    const DsOptimizer sgd = kind("SGD", "\"lr\": 0.1, \"momentum\": 0.9, \"nesterov\": true");
    EXPECT_EQ(sgd.kind, UpdateKind::kSgd);
    EXPECT_EQ(sgd.momentum, 0.9);
    EXPECT_TRUE(sgd.nesterov);
    const DsOptimizer factor = kind("Adafactor", "\"eps\": [null, 0.01], \"d\": 2");
    EXPECT_EQ(factor.eps, 1e-30);
    EXPECT_EQ(factor.eps_scale, 0.01);
    EXPECT_EQ(factor.clip_update, 2);
    ExpectError(R"({"optimizer": {"type": "Lamb"}})", "optimizer.type is 'lamb'; expected AdamW");
    ExpectError(R"({"optimizer": {"params": {}}})", "expected AdamW");
    ExpectError(R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.9]}}})", "two numbers");
    ExpectError(R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.9, 1]}}})", "below 1");
    ExpectError(R"({"optimizer": {"type": "AdamW", "params": {"amsgrad": true}}})",
                "optimizer.params.amsgrad is not supported");
    ExpectError(R"({"optimizer": {"type": "SGD", "params": {"nesterov": true}}})", "a momentum");
}

TEST(DsConfig, Schedulers) {
    const DsConfig config = Read(R"({
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
        "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 100,
            "warmup_num_steps": 10, "cos_min_ratio": 0.1, "warmup_type": "linear"}}})");
    EXPECT_EQ(*config.schedule, (Schedule{.kind = ScheduleKind::kWarmupCosineLr,
                                          .rate = 0.01,
                                          .end = 0.1,
                                          .log_warmup = false,
                                          .warmup_steps = 10,
                                          .total_steps = 100}));
    const DsConfig plain = Read(R"({"scheduler": {"type": "WarmupLR"}})");
    EXPECT_EQ(plain.schedule->warmup_steps, 1000);
    EXPECT_TRUE(plain.schedule->log_warmup);
    ExpectError(R"({"scheduler": {"type": "OneCycle"}})", "'OneCycle'; expected WarmupLR");
    ExpectError(R"({"scheduler": {"type": "constant"}})", "'constant'");
    const DsConfig odd =
        Read(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "cubic"}}})");
    EXPECT_TRUE(odd.schedule->log_warmup);
    ASSERT_EQ(odd.warnings.size(), 1u);
    EXPECT_NE(odd.warnings[0].find("'cubic'"), std::string::npos);
}

TEST(DsConfig, PrecisionOffloadAndTheRest) {
    const DsConfig config = Read(R"({
        // Comments are DeepSpeed's own habit.
        "fp16": {"enabled": true, "loss_scale": 128, "initial_scale_power": 12,
                 "loss_scale_window": 500, "hysteresis": 4, "min_loss_scale": 2},
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"},
            "offload_param": {"device": "nvme", "nvme_path": "/local"},
            "param_persistence_threshold": 1e4},
        "gradient_clipping": 0.0, "communication_data_type": "bf16",
        "data_types": {"grad_accum_dtype": "fp32"},
        "activation_checkpointing": {"cpu_checkpointing": true},
        "tensorboard": {"enabled": true, "output_path": "logs", "job_name": "x"},
        "csv_monitor": {"enabled": false}, "aio": {}})");
    EXPECT_EQ(config.precision, Precision::kF16);
    EXPECT_EQ(config.loss_scale.fixed, 128);
    EXPECT_EQ(config.loss_scale.initial_power, 12);
    EXPECT_EQ(config.loss_scale.window, 500);
    EXPECT_EQ(config.loss_scale.hysteresis, 4);
    EXPECT_EQ(config.loss_scale.least, 2);
    ExpectError(R"({"fp16": {"initial_scale_power": 4, "min_loss_scale": 17}})",
                "no more than 2^initial_scale_power");
    ExpectError(R"({"fp16": {"hysteresis": 0}})", "from 1 to");
    EXPECT_EQ(config.zero.optimizer.device, DsDevice::kCpu);
    EXPECT_EQ(config.zero.parameters.device, DsDevice::kNvme);
    EXPECT_EQ(config.zero.parameters.path, "/local");
    EXPECT_EQ(config.zero.persistence_threshold, 10000);
    EXPECT_EQ(config.clip, 0);
    EXPECT_EQ(config.communication, Precision::kBf16);
    EXPECT_EQ(config.accumulate, Precision::kF32);
    EXPECT_TRUE(config.activations.given);
    EXPECT_TRUE(config.activations.on_cpu);
    EXPECT_TRUE(config.tensorboard.enabled);
    EXPECT_EQ(config.tensorboard.path, "logs");
    EXPECT_TRUE(config.warnings.empty()) << config.warnings[0];
    EXPECT_EQ(Read(R"({"bfloat16": {"enabled": true}})").precision, Precision::kBf16);
    EXPECT_EQ(Read("{}").precision, Precision::kF32);
    EXPECT_EQ(Read("{}").clip, 0);
    EXPECT_EQ(Read(R"({"gradient_clipping": "auto"})").clip, 1);
    ExpectError(R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})", "both true");
    DsFlags flags;
    flags.precision = Precision::kF32;
    ExpectError(R"({"bf16": {"enabled": true}})", "another precision", flags);
    ExpectError(R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})",
                "needs stage 3");
    ExpectError(R"({"zero_optimization": {"offload_optimizer": {"device": "nvme"}}})", "nvme_path");
    ExpectError(R"({"zero_optimization": {"offload_optimizer": {"device": "gpu"}}})",
                "offload_optimizer.device is \"gpu\"; expected none, cpu or nvme");
}

TEST(DsConfig, KeysWithoutEffectAreReported) {
    const DsConfig config = Read(R"({"dump_state": true, "wall_clock_breakdown": true,
        "sparse_gradients": false, "graph_harvesting": true, "seq_parallel_comm_data_type": "fp32",
        "flops_profiler": {"enabled": true}, "comms_logger": {"enabled": false},
        "curriculum_learning": {"enabled": false}, "gradient_allreduce_op": "mean",
        "zero_optimization": {"stage": 1, "sub_group_size": 1e9, "overlap_com": true,
            "zeropp_loco_param": {"err_beta": 0.8}, "partition_stream_chunk_size": 9,
            "contiguous_gradients": false}, "train_micro_batch_per_gpu": 3, "zzzzzzzzzz": 1})");
    const std::vector<std::string> wanted = {
        "wall_clock_breakdown: no effect",
        "dump_state: no effect",
        "flops_profiler: no effect",
        "train_micro_batch_per_gpu: not a key of DeepSpeed's; no effect. Is "
        "train_micro_batch_size_per_gpu meant?",
        "zero_optimization.overlap_com: not a key of DeepSpeed's; no effect. Is "
        "zero_optimization.overlap_comm meant?",
        "zero_optimization.sub_group_size: no effect",
        "graph_harvesting: no effect",
        "seq_parallel_comm_data_type: no effect",
        "zero_optimization.zeropp_loco_param: no effect",
        "zzzzzzzzzz: not a key of DeepSpeed's; no effect",
    };
    EXPECT_EQ(config.warnings.size(), wanted.size());
    for (const std::string& words : wanted) {
        EXPECT_TRUE(std::ranges::any_of(config.warnings, [&](const std::string& warning) {
            return warning.starts_with(words);
        })) << words;
    }
    const DsConfig odd = Read(R"({"steps_per_print": "auto", "a.b": 1,
        "zero_optimization.stage": 3})");
    EXPECT_EQ(odd.warnings.size(), 3u);
    EXPECT_EQ(odd.zero.stage, 0);
}

// DeepSpeed reads its files as Hjson.
TEST(DsConfig, CommentsAndCommasBeforeBracketsAreRead) {
    const DsConfig config = Read(
        "{ # one, [\n \"train_micro_batch_size_per_gpu\": 3, // two \"\n /* three, */\n"
        "\"csv_monitor\": {\"enabled\": true, \"job_name\": \"a # \\\" // ,}\",},\n"
        "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": [0.5, 0.75, # four\n ], "
        "}},\n}");
    EXPECT_EQ(config.micro_batch, 3);
    EXPECT_EQ(config.csv.job, "a # \" // ,}");
    EXPECT_EQ(config.optimizer->beta2, 0.75);
    ExpectError("{\"steps_per_print\": 1,,}", "not valid JSON: parse error at line 1, column 24");
    ExpectError("{\n/* {\"steps_per_print\": 1}", "not valid JSON: parse error at line 2");
}

TEST(DsConfig, WhatWouldTrainSomethingElseIsRefused) {
    for (const char* text :
         {R"({"amp": {"enabled": true}})", R"({"sparse_attention": {"mode": "fixed"}})",
          R"({"gradient_allreduce_op": "sum"})", R"({"curriculum_learning": {"enabled": true}})",
          R"({"torch_autocast": {"enabled": true}})", R"({"sequence_parallel_size": 2})",
          R"({"bf16": {"bf16_optimizer_states": true}})"}) {
        const auto config = ParseDsConfig(text, "ds.json", {});
        ASSERT_FALSE(config.ok()) << text;
        EXPECT_EQ(config.error().code, ErrorCode::kUnsupported) << text;
    }
}

TEST(DsConfig, WrongTypesNamePathExpectedAndActual) {
    ExpectError(R"({"zero_optimization": {"stage": 4}})",
                "zero_optimization.stage is a number (4); expected a whole number from 0 to 3");
    ExpectError(R"({"zero_optimization": {"stage": "3"}})", "stage is a string (\"3\")");
    ExpectError(R"({"zero_optimization": {"stage": 1.5}})", "a whole number");
    ExpectError(R"({"zero_optimization": {"overlap_comm": 1}})", "expected true or false");
    ExpectError(R"({"zero_optimization": true})", "zero_optimization is true or false (true)");
    ExpectError(R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.9, "x"]}}})", "betas");
    ExpectError(R"({"fp16": {"loss_scale": 1e999}})", "not valid JSON");
    ExpectError("[]", "expected an object");
    ExpectError("{", "not valid JSON");
    ExpectError(R"({"bf16": {"enabled": true, "enabled": false}})", "'enabled' is there twice");
    std::string deep = "1";
    for (int i = 0; i < 40; ++i) deep = "{\"x\": " + deep + "}";
    ExpectError(deep, "nested deeper");
}

// Every key of the table is accepted in its own type with its smallest value. The table has no key
// twice and lists each section before its keys.
TEST(DsConfig, TheTableIsWhole) {
    std::set<std::string_view> seen;
    for (const DsKey& key : DsKeys()) {
        EXPECT_TRUE(seen.insert(key.path).second) << key.path;
        const size_t dot = key.path.rfind('.');
        if (dot != key.path.npos) {
            EXPECT_TRUE(seen.contains(key.path.substr(0, dot))) << key.path;
        }
        EXPECT_FALSE(key.here.empty()) << key.path;
        EXPECT_LE(key.least, key.most) << key.path;
    }
    EXPECT_GT(seen.size(), 150u);
}

// docs/deepspeed.md has a row for each.
TEST(DsConfig, TheDocumentHasEveryKey) {
    const std::string document = Must(ReadTextFile(support::TestData("/../../docs/deepspeed.md")));
    for (const DsKey& key : DsKeys()) {
        EXPECT_NE(document.find(fmt::format("| `{}` |", key.path)), std::string::npos) << key.path;
        EXPECT_NE(document.find(key.here), std::string::npos) << key.path << ": " << key.here;
    }
}

}  // namespace
}  // namespace weft::train
