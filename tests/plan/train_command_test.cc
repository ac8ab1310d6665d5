// `weft plan --train` as users call it, and against a real training job.
#include <gtest/gtest.h>

#include <fstream>
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

// Llama 3.1 405B was trained with TP 8 and PP 16 on H100 GPUs of 80 GB, with sequence parallelism.
TEST(PlanTrainCommand, GivenTensorRanksHaveSequenceParallelism) {
    const Words asked{"plan",
                      "llama-3.1-405b",
                      "--train",
                      "--machines",
                      "16xh100",
                      "--tp",
                      "8",
                      "--pp",
                      "16",
                      "--seq-len",
                      "8192",
                      "--recompute",
                      "full",
                      "--global-batch",
                      "128",
                      "--json",
                      "--micro-batch",
                      "1",
                      "--virtual-stages",
                      "1"};
    const auto layout = [&](const Words& more) {
        return nlohmann::json(RunWeft(asked + more).Json()["layouts"][0]);
    };
    const auto best = layout({});
    EXPECT_EQ(best["layout"], "tp8 sp pp16");
    EXPECT_EQ(best["fits"], true);
    EXPECT_EQ(layout({"--sequence-parallel", "off"})["fits"], false);
}

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
    Words other = kAsked;
    other.erase(other.begin(), other.begin() + 3);
    const Ran estimate = RunWeft(Words{"train", "estimate", "llama-3.1-8b"} + other);
    ASSERT_EQ(estimate.status, 0) << estimate.err;
    EXPECT_EQ(estimate.out, table.out);
}

TEST(PlanTrainCommand, EstimateHasAHelpOfItsOwn) {
    const Ran help = RunWeft({"train", "estimate", "--help"});
    ASSERT_EQ(help.status, 0) << help.err;
    for (const char* part : {"Usage: weft train estimate", "  weft train estimate llama-3.1-70b",
                             "--machines", "--explain", "--reward-model"}) {
        EXPECT_NE(help.out.find(part), std::string::npos) << part << "\n" << help.out;
    }
    for (const char* part : {"  weft plan ", "--kv-dtype", "--measure", "Needs: --train"}) {
        EXPECT_EQ(help.out.find(part), std::string::npos) << part;
    }
    const Ran wrong = RunWeft({"train", "estimate", "llama-3.1-8b", "--nonsense"});
    EXPECT_NE(wrong.err.find("'weft train estimate' has no flag --nonsense"), std::string::npos)
        << wrong.err;
    const Ran none = RunWeft({"train", "estimate", "llama-3.1-8b"});
    EXPECT_NE(none.err.find("--machines is missing"), std::string::npos) << none.err;
}

// The flags of adapters are those of `weft train`, and fewer adapters take less memory.
TEST(PlanTrainCommand, EstimateTakesTheAdaptersOfTrain) {
    const auto bytes = [](const Words& flags) {
        const Ran ran = RunWeft(Words{"train", "estimate", "llama-3.1-8b", "--machines", "h100",
                                      "--micro-batch", "1", "--recompute", "full", "--json"} +
                                flags);
        EXPECT_EQ(ran.status, 0) << ran.err;
        return ran.Json()["layouts"][0]["worst_rank_bytes"].get<double>();
    };
    const double all = bytes({"--lora", "256"});
    EXPECT_EQ(bytes({"--lora-rank", "256"}), all);
    EXPECT_EQ(bytes({"--lora", "256", "--lora-targets", "all"}), all);
    EXPECT_LT(bytes({"--lora", "256", "--lora-targets", "q_proj,v_proj"}), all);
    const Ran none = RunWeft({"train", "estimate", "llama-3.1-8b", "--machines", "h100", "--lora",
                              "8", "--lora-targets", "nothing"});
    EXPECT_NE(none.err.find("nothing"), std::string::npos) << none.err;
    EXPECT_NE(none.status, 0);
}

// Slow updates are not printed as 0 tokens/s, and long times not in seconds.
TEST(PlanTrainCommand, SlowRatesHaveDecimals) {
    const Words slow{"plan", "llama-3.1-405b", "--train", "--sequences", "1000"};
    const Ran ran = RunWeft(slow + Words{"--machines", "raspberry-pi-4", "--lora-rank", "8"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_NE(ran.out.find(" 0.0"), std::string::npos) << ran.out;
    EXPECT_EQ(ran.out.find(" 0 ±"), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("an epoch of 1000 sequences: "), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find(" h\n"), std::string::npos) << ran.out;
}

// config.json of a small model.
void WriteConfig(const std::string& file, int layers, bool tied) {
    std::ofstream(file) << nlohmann::json{
        {"model_type", "llama"},      {"hidden_size", 256},       {"num_hidden_layers", layers},
        {"num_attention_heads", 4},   {"num_key_value_heads", 2}, {"intermediate_size", 768},
        {"vocab_size", 1024},         {"rms_norm_eps", 1e-6},     {"max_position_embeddings", 1024},
        {"tie_word_embeddings", tied}};
}

// The user's own model and machine files, adapters, other optimizers.
TEST(PlanTrainCommand, TakesOwnFiles) {
    const test::TempDir dir;
    WriteConfig(dir / "config.json", 4, false);
    std::ofstream(dir / "box.json")
        << R"({"memory": {"is": "16 GB", "mark": "measured", "source": "x"},
               "bandwidth": {"is": "40 GB/s", "mark": "measured", "source": "x"},
               "compute": {"is": "0.2 TFLOP/s", "mark": "measured", "source": "x"},
               "products": {"is": "70 %", "mark": "measured", "source": "x"}})";
    const Words asked{
        "plan",  dir / "config.json", "--train", "--machines", "3x" + (dir / "box.json") + ",10gbe",
        "--json"};
    for (const Words& more :
         {Words{}, Words{"--optim", "adam8bit", "--dtype", "f32"}, Words{"--tp", "3"},
          Words{"--lora-rank", "8"}, Words{"--optim", "schedule-free"}, Words{"--optim", "muon"}}) {
        EXPECT_EQ(RunWeft(asked + more).Json()["layouts"][0]["fits"], true);
    }
    const Ran cut = RunWeft(asked + Words{"--optim", "muon", "--tp", "3"});
    EXPECT_NE(cut.status, 0);
    EXPECT_NE(cut.err.find("muon needs whole matrices"), std::string::npos) << cut.err;
    std::ofstream(dir / "box.json") << R"({"products": {"is": "70 W"}})";
    const Ran unit = RunWeft(asked);
    EXPECT_EQ(unit.status, 2);
    EXPECT_NE(unit.err.find("box.json"), std::string::npos) << unit.err;
}

// LoRA of one or two layers, where the first and the last ops include all layers.
TEST(PlanTrainCommand, AdaptersOfFewerLayersTakeLessTime) {
    const test::TempDir dir;
    for (const bool tied : {false, true}) {
        double before = 0;
        for (const int layers : {1, 2, 3, 4}) {
            WriteConfig(dir / "config.json", layers, tied);
            const Ran ran = RunWeft({"plan", dir / "config.json", "--train", "--machines", "h100",
                                     "--lora-rank", "8", "--json", "--explain"});
            ASSERT_EQ(ran.status, 0) << ran.err;
            const nlohmann::json layout = ran.Json()["layouts"][0];
            const nlohmann::json parts = layout["update_parts_s"];
            // (The wait for the batch of so small a model hides its arithmetic.)
            const double seconds = (parts["total"].get<double>() - parts["data"].get<double>()) /
                                   layout["sequences"].get<double>();
            EXPECT_GT(seconds, before) << layers;
            before = seconds;
        }
    }
}

TEST(PlanTrainCommand, SlowMachinesAndWiresAreLeftOut) {
    const Words job{"plan", "llama-3.1-8b", "--train", "--machines"};
    const nlohmann::json alone = RunWeft(job + Words{"h100", "--json"}).Json()["layouts"][0];
    for (const Words& machines :
         {Words{"h100+rtx-4090"}, Words{"rtx-4090+h100"}, Words{"2xh100,2.5gbe"}}) {
        const nlohmann::json best = RunWeft(job + machines + Words{"--json"}).Json()["layouts"][0];
        EXPECT_EQ(best["uses"], "1xh100") << machines[0];
        EXPECT_EQ(best["tokens_per_s"], alone["tokens_per_s"]) << machines[0];
        EXPECT_EQ(best["layout"], alone["layout"]) << machines[0];
        const Ran table = RunWeft(job + machines);
        EXPECT_EQ(table.out.find("machines"), std::string("layout").size() + 21) << table.out;
    }
    // All hosts are faster: the table has no column of machines.
    const Ran all = RunWeft(job + Words{"2xh100,roce-8x400g"});
    EXPECT_GT(all.out.find("machines"), all.out.find('\n')) << all.out;
    // 9 ranks are not a multiple of --tp 2; 8 are.
    const Ran some = RunWeft(job + Words{"h100+rtx-4090", "--tp", "2", "--json"});
    ASSERT_EQ(some.status, 0) << some.err;
    EXPECT_EQ(some.Json()["layouts"][0]["uses"], "1xh100");
}

TEST(PlanTrainCommand, NamesInvalidFlags) {
    struct Case {
        const char* model;
        Words more;
        const char* error;
        int status = 2;
    };
    const char* plain = "llama-3.1-8b";
    for (const Case& c : std::initializer_list<Case>{
             {plain, {"h1000"}, "no machine is called 'h1000'"},
             {plain, {"h100,string"}, "no wire is called 'string'"},
             {plain, {"h100", "--pp", "3", "--dp", "1", "--virtual-stages", "20"}, "60", 1},
             {plain, {"h100", "--tp", "16"}, "are 16 ranks; h100 has 8"},
             {plain,
              {"2xh100", "--tp", "3"},
              "16 ranks are not a multiple of --tp 3 x --pp 1: change one of them, or use fewer"},
             {plain,
              {"2xh100", "--tp", "1", "--pp", "1", "--micro-batch", "3", "--global-batch", "64"},
              "do not divide --global-batch 64",
              1},
             {plain,
              {"2xh100", "--tp", "1", "--pp", "2", "--virtual-stages", "3", "--grad-accum", "5"},
              "use 4 or 6",
              1},
             {plain, {"h100", "--lora-rank", "5000"}, "--lora-rank"},
             {plain, {"h100", "--optimizer-drive", "2"}, "in the memory of its GPU"},
             {plain, {"h100", "--cp", "2", "--vectors"}, "--cp 2 with --vectors"},
             {plain, {"h100", "--cp", "2", "--sequence-parallel", "on"}, "both divide the rows"},
             {plain, {"h100", "--optim", "rmsprop"}, "--optim rmsprop: expected adamw"},
             {plain, {"h100", "--optim", "muon", "--lora-rank", "8"}, "only adapters train"},
             {plain, {"h100", "--grad-dtype", "f16"}, "--grad-dtype f16 with --dtype bf16"},
             {plain,
              {"h100", "--seq-len", "64", "--completions", "8", "--max-completion-length", "64"},
              "a sequence has the prompt, too"},
             {plain,
              {"h100", "--num-generations", "4"},
              "--num-generations requires --completions"},
             {plain,
              {"h100", "--max-completion-length", "9"},
              "--max-completion-length requires --completions"},
             {plain, {"h100", "--ep", "2"}, "--ep 2: llama-3.1-8b has 0 experts"},
             {plain, {"2xh100,roce,tcp"}, "one wire joins all hosts, not 'roce' and 'tcp'"},
             {plain, {"roce"}, "'roce' is a wire, which stands behind the machines"},
             {plain, {"", "--sequences", "9"}, "--train requires --machines, such as 8xh100"},
             {plain, {"h100", "--within", "48h"}, "--machines NAMES --sequences N predicts"},
             {plain, {"", "--budget", "9EUR"}, "such as 8xh100, not --want, --budget"},
             {plain, {"h100", "--want", "20tok/s"}, "such as 8xh100, not --want, --budget"},
             {"mixtral-8x7b", {"h100", "--ep", "16"}, "--ep 16: mixtral-8x7b has 8 experts"},
             {"mixtral-8x7b", {"h100:4", "--ep", "8"}, "divide its tensor ranks, at most 4"},
             {"deepseek-v4-flash",
              {"8xh100"},
              "have no gradient yet: this model can be run, but not trained",
              1}}) {
        const Ran ran = RunWeft(Words{"plan", c.model, "--train", "--machines"} + c.more);
        EXPECT_EQ(ran.status, c.status) << c.error << ran.out;
        EXPECT_NE(ran.err.find(c.error), std::string::npos) << ran.err;
        EXPECT_EQ(ran.err.find("weft: bug"), std::string::npos) << ran.err;
    }
    const Ran without = RunWeft({"plan", plain, "--machines", "h100", "--zero", "3"});
    EXPECT_EQ(without.status, 2);
    EXPECT_NE(without.err.find("--zero requires --train"), std::string::npos) << without.err;
}

// Many rows, so that activations are larger than the processor's own buffers.
TEST(PlanTrainCommand, MemoryIsThatOfARealJob) {
    const test::TempDir dir;
    const std::string file = dir / "model.gguf";
    model::Hyper hyper = TrainHyper();
    hyper.layers = 6;
    WriteTinyGguf(file, {.hyper = hyper, .dtype = DType::kF32});
    const plan::OpenedShape shape = plan::OpenWalk(file).value();
    auto cluster = plan::Library::Open()->ParseCluster("raspberry-pi-5");
    cluster->hosts[0].threads = 1;
    const plan::TrainLinks links(*cluster);
    using train::UpdateKind;
    for (const auto& [recompute, kind] : {std::pair{"none", UpdateKind::kAdamW},
                                          {"full", UpdateKind::kAdamW},
                                          {"none", UpdateKind::kLion},
                                          {"none", UpdateKind::kScheduleFree},
                                          {"none", UpdateKind::kMuon}}) {
        SCOPED_TRACE(testing::Message() << train::UpdateName(kind) << " recompute " << recompute);
        plan::TrainJob job;
        job.sequence = 128;
        job.update.kind = kind;
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
        options.update.kind = kind;
        auto ranks = cluster::Cluster::Launch({}, "");
        ASSERT_TRUE(ranks.ok());
        const auto trainer = train::Trainer::Make(options, **ranks);
        ASSERT_TRUE(trainer.ok()) << trainer.error().message;
        const backend::MemoryUse real = (*trainer)->memory();
        const plan::StageMemory& memory = predicted->memory[0];
        EXPECT_NEAR(memory.state / static_cast<double>(real.weight_bytes), 1, 0.05);
        EXPECT_NEAR(memory.work / static_cast<double>(real.arena_bytes), 1, 0.15);
        EXPECT_NEAR((memory.state + memory.work) /
                        static_cast<double>(real.weight_bytes + real.arena_bytes),
                    1, 0.1);
    }
}

}  // namespace
}  // namespace weft::support
