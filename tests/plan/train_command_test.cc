// `weft plan --train` as users call it, and against a real training job.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "cluster/cluster.h"
#include "plan/shapes.h"
#include "plan/train_predict.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "train/trainer.h"

namespace weft::support {
namespace {

const Words kAsked{"plan", "llama-3.1-8b", "--train", "--machines",    "2xh100", "--zero",
                   "3",    "--tp",         "1",       "--pp",          "1",      "--seq-len",
                   "2048", "--recompute",  "none",    "--micro-batch", "2",      "--explain"};

TEST(PlanTrainCommand, TableAndJsonSayTheSame) {
    const Ran table = RunWeft(kAsked);
    ASSERT_EQ(table.status, 0) << table.err;
    const Ran ran = RunWeft(kAsked + Words{"--json", "--sequences", "3200"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const nlohmann::json layouts = ran.Json()["layouts"];
    ASSERT_EQ(layouts.size(), 1u);
    const auto& best = layouts[0];
    EXPECT_EQ(best["layout"], "tp1 dp16 zero3");
    EXPECT_EQ(best["sequences"], 32);
    EXPECT_EQ(best["fits"], true);
    const double seconds = best["update_s"];
    EXPECT_NEAR(best["tokens_per_s"].get<double>() * seconds, 32 * 2048, 1e-6);
    EXPECT_NEAR(best["epoch_s"].get<double>() / seconds, 100, 1e-9);
    double sum = 0;
    for (const auto& [name, part] : best["update_parts_s"].items()) {
        if (name != "total") sum += part.get<double>();
    }
    EXPECT_NEAR(sum, seconds, 1e-12);
    std::ostringstream total;
    total << std::fixed << std::setprecision(4) << seconds << " s\n";
    EXPECT_NE(table.out.find(total.str()), std::string::npos) << table.out;
    // The other name of it.
    Words other = kAsked;
    other.erase(other.begin(), other.begin() + 3);
    const Ran estimate = RunWeft(Words{"train", "estimate", "llama-3.1-8b"} + other);
    ASSERT_EQ(estimate.status, 0) << estimate.err;
    EXPECT_EQ(estimate.out, table.out);
}

// A model that is only a config.json, adapters, other optimizers and machines of one's own.
TEST(PlanTrainCommand, TakesWhatPeopleHave) {
    const test::TempDir dir;
    std::ofstream(dir / "config.json")
        << R"({"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4,
               "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 768,
               "vocab_size": 1024, "rms_norm_eps": 1e-6, "max_position_embeddings": 1024,
               "tie_word_embeddings": false})";
    std::ofstream(dir / "box.json")
        << R"({"memory": {"is": "16 GB", "mark": "measured", "source": "x"},
               "bandwidth": {"is": "40 GB/s", "mark": "measured", "source": "x"},
               "compute": {"is": "0.2 TFLOP/s", "mark": "measured", "source": "x"},
               "products": {"is": "70 %", "mark": "measured", "source": "x"}})";
    const Words asked{
        "plan",  dir / "config.json", "--train", "--machines", "3x" + (dir / "box.json") + ",10gbe",
        "--json"};
    for (const Words& more : {Words{}, Words{"--lora-rank", "8"},
                              Words{"--optim", "adam8bit", "--dtype", "f32"}, Words{"--tp", "3"}}) {
        const Ran ran = RunWeft(asked + more);
        ASSERT_EQ(ran.status, 0) << ran.err;
        EXPECT_EQ(ran.Json()["layouts"][0]["fits"], true);
        EXPECT_GT(ran.Json()["layouts"][0]["tokens_per_s"].get<double>(), 0);
    }
    std::ofstream(dir / "box.json") << R"({"products": {"is": "70 W"}})";
    const Ran unit = RunWeft(asked);
    EXPECT_EQ(unit.status, 2);
    EXPECT_NE(unit.err.find("box.json"), std::string::npos) << unit.err;
}

// Adapters beside one or two layers are trained, and so planned: fewer layers take less.
TEST(PlanTrainCommand, TakesAdaptersOfFewLayers) {
    const test::TempDir dir;
    for (const bool tied : {false, true}) {
        double before = 0;
        for (const int layers : {1, 2, 3, 4}) {
            std::ofstream(dir / "config.json") << nlohmann::json{{"model_type", "llama"},
                                                                 {"hidden_size", 256},
                                                                 {"num_hidden_layers", layers},
                                                                 {"num_attention_heads", 4},
                                                                 {"num_key_value_heads", 2},
                                                                 {"intermediate_size", 768},
                                                                 {"vocab_size", 1024},
                                                                 {"rms_norm_eps", 1e-6},
                                                                 {"max_position_embeddings", 1024},
                                                                 {"tie_word_embeddings", tied}};
            const Ran ran = RunWeft({"plan", dir / "config.json", "--train", "--machines", "h100",
                                     "--lora-rank", "8", "--json"});
            ASSERT_EQ(ran.status, 0) << ran.err;
            const auto layout = ran.Json()["layouts"][0];
            const double seconds = 1 / layout["tokens_per_s"].get<double>();
            EXPECT_GT(seconds, before) << layers;
            before = seconds;
        }
    }
}

// What is slower than a part of itself is not the fastest.
TEST(PlanTrainCommand, SlowMachinesAndWiresAreLeftOut) {
    const Words job{"plan", "llama-3.1-8b", "--train", "--machines"};
    const nlohmann::json alone = RunWeft(job + Words{"h100", "--json"}).Json()["layouts"][0];
    for (const char* machines : {"h100+rtx-4090", "rtx-4090+h100", "2xh100,2.5gbe"}) {
        const Ran ran = RunWeft(job + Words{machines, "--json"});
        ASSERT_EQ(ran.status, 0) << ran.err;
        const nlohmann::json best = ran.Json()["layouts"][0];
        EXPECT_EQ(best["uses"], "1xh100") << machines;
        EXPECT_EQ(best["tokens_per_s"], alone["tokens_per_s"]) << machines;
        EXPECT_EQ(best["layout"], alone["layout"]) << machines;
        const Ran table = RunWeft(job + Words{machines});
        EXPECT_EQ(table.out.find("machines"), std::string("layout").size() + 21) << table.out;
    }
    // All hosts where these are faster: no column, as of one host.
    const Ran all = RunWeft(job + Words{"2xh100,roce-8x400g"});
    EXPECT_GT(all.out.find("machines"), all.out.find('\n')) << all.out;
    // Of 9 ranks no multiple is --tp 2; of 8 it is.
    const Ran some = RunWeft(job + Words{"h100+rtx-4090", "--tp", "2", "--json"});
    ASSERT_EQ(some.status, 0) << some.err;
    EXPECT_EQ(some.Json()["layouts"][0]["uses"], "1xh100");
}

TEST(PlanTrainCommand, SaysWhatIsWrong) {
    for (const auto& [more, words] : std::initializer_list<std::pair<Words, const char*>>{
             {{"--machines", "h1000"}, "no machine is called 'h1000'"},
             {{"--machines", "h100,string"}, "no wire is called 'string'"},
             {{"--machines", "h100", "--pp", "3", "--dp", "1", "--virtual-stages", "20"}, "60"},
             {{"--machines", "h100", "--tp", "16"}, "are 16 ranks; h100 has 8"},
             {{"--machines", "h100", "--lora-rank", "5000"}, "--lora-rank"},
             {{"--machines", "h100", "--optim", "lion"}, "--optim lion: expected adamw"},
             {{"--machines", "h100", "--ep", "2"}, "--ep 2: llama-3.1-8b has 0 experts"},
             {{"--machines", "2xh100,roce,tcp"}, "one wire joins all hosts, not 'roce' and 'tcp'"},
             {{"--machines", "roce"}, "'roce' is a wire, which stands behind the machines"},
             {{"--sequences", "1000000"}, "--train takes --machines, such as 8xh100; or --within"},
             {{"--budget", "9EUR"}, "in what time, such as --within 48h"},
             {{"--machines", "h100", "--want", "20tok/s"},
              "--train takes --machines, or --within (with --budget), not --want"}}) {
        const Ran ran = RunWeft(Words{"plan", "llama-3.1-8b", "--train"} + more);
        EXPECT_NE(ran.status, 0) << ran.out;
        EXPECT_NE(ran.err.find(words), std::string::npos) << ran.err;
        EXPECT_EQ(ran.err.find("weft: bug"), std::string::npos) << ran.err;
    }
    const Ran without = RunWeft({"plan", "llama-3.1-8b", "--machines", "h100", "--zero", "3"});
    EXPECT_EQ(without.status, 2);
    EXPECT_NE(without.err.find("--zero requires --train"), std::string::npos) << without.err;
    const Words experts{"plan", "mixtral-8x7b", "--train", "--machines"};
    const Ran many = RunWeft(experts + Words{"h100", "--ep", "16"});
    EXPECT_EQ(many.status, 2);
    EXPECT_NE(many.err.find("--ep 16: mixtral-8x7b has 8 experts"), std::string::npos) << many.err;
    const Ran few = RunWeft(experts + Words{"h100:4", "--ep", "8"});
    EXPECT_EQ(few.status, 2);
    EXPECT_NE(few.err.find("of which there are 4 at most"), std::string::npos) << few.err;
    const Ran latent = RunWeft({"plan", "deepseek-v3", "--train", "--machines", "8xh100"});
    EXPECT_NE(latent.status, 0);
    EXPECT_NE(latent.err.find("deepseek-v3: Weft does not train latent attention"),
              std::string::npos)
        << latent.err;
}

// Products and attention take twice as long in float32, and kept and sent values are twice as
// large. With a micro-batch of 4, arithmetic hides most collectives, so the update takes nearly
// twice the time, too.
TEST(PlanTrainCommand, SinglePrecisionIsSlower) {
    Words asked = kAsked;
    *std::next(std::ranges::find(asked, "--micro-batch")) = "4";
    const auto layout = [&](const char* dtype) {
        const Ran ran = RunWeft(asked + Words{"--dtype", dtype, "--json"});
        EXPECT_EQ(ran.status, 0) << ran.err;
        return ran.Json()["layouts"][0];
    };
    const nlohmann::json half = layout("bf16"), single = layout("f32");
    const double ratio = half["tokens_per_s"].get<double>() / single["tokens_per_s"].get<double>();
    EXPECT_GT(ratio, 1.7);
    EXPECT_LT(ratio, 2.3);
    for (const char* part : {"products", "attention"}) {
        const auto seconds = [&](const nlohmann::json& of) {
            return of["update_parts_s"][part].get<double>();
        };
        EXPECT_NEAR(seconds(single) / seconds(half), 2, 0.01) << part;
    }
}

// What a trainer holds in memory is what was predicted for it (of few rows a processor's own
// buffers would be the larger part).
TEST(PlanTrainCommand, MemoryIsThatOfARealJob) {
    const test::TempDir dir;
    const std::string file = dir / "model.gguf";
    model::Hyper hyper = TrainHyper();
    hyper.layers = 6;
    WriteTinyGguf(file, {.hyper = hyper, .dtype = DType::kF32});
    const plan::OpenedShape shape = plan::OpenWalk(file).value();
    const auto cluster = plan::Library::Open()->ParseCluster("raspberry-pi-5");
    const plan::TrainLinks links(*cluster);
    for (const char* recompute : {"none", "full"}) {
        plan::TrainJob job;
        job.sequence = 128;
        auto walk = plan::TrainWalk::Make(shape.walk, job);
        plan::TrainCut cut;
        cut.micro_batch = 64;
        const bool full = recompute == std::string("full");
        cut.recompute = full ? program::Recompute::kFull : program::Recompute::kNone;
        const auto predicted = plan::PredictTraining(*walk, links, cut);
        ASSERT_TRUE(predicted.ok()) << predicted.error().message;
        train::TrainerOptions options;
        options.model = file;
        options.threads = 1;
        options.sequence = 128;
        options.micro_batch = 64;
        options.dtype = DType::kBF16;
        options.recompute = recompute;
        auto ranks = cluster::Cluster::Launch({}, "");
        ASSERT_TRUE(ranks.ok());
        const auto trainer = train::Trainer::Make(options, **ranks);
        ASSERT_TRUE(trainer.ok()) << trainer.error().message;
        const backend::MemoryUse real = (*trainer)->memory();
        const plan::StageMemory& memory = predicted->memory[0];
        EXPECT_NEAR(memory.state / static_cast<double>(real.weight_bytes), 1, 0.05) << recompute;
        EXPECT_NEAR(memory.work / static_cast<double>(real.arena_bytes), 1, 0.15) << recompute;
    }
}

}  // namespace
}  // namespace weft::support
