// Adapters of the package PEFT beside models of transformers (tests/data/lora_golden.safetensors,
// made by tools/make_lora_golden.py): the logits of 'weft logits --lora', of the model that 'weft
// merge' writes, and of an adapter that Weft reads and writes again.
#include <gtest/gtest.h>

#include <set>

#include "model_files/hf/safetensors.h"
#include "model_files/lora/adapter.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "train/lora/lora_source.h"

namespace weft::support {
namespace {

// Tolerance of float32 sums over two layers, compared with float64.
constexpr double kLoraGoldenBound = 5e-5;

const HfGolden& Peft() {
    static const HfGolden golden(TestData("/lora_golden.safetensors"));
    return golden;
}

std::vector<std::string> PeftCases() {
    std::vector<std::string> names = Peft().Cases("/logits");
    for (const std::string& name : Peft().Cases()) {
        if (!name.ends_with(".adapter")) names.push_back(name);
    }
    return names;
}

class LoraGolden : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        Peft().Write(GetParam(), model_);
        WriteText(model_ + "/tokenizer.json", SmallTokenizer());
        WriteAdapterFiles(Peft().Tensors(GetParam() + ".adapter"));
    }
    void WriteAdapterFiles(const std::map<std::string, SafeBytes>& tensors) {
        std::filesystem::create_directories(adapter_);
        WriteText(adapter_ + "/adapter_config.json", Peft().Text(GetParam() + ".adapter/config"));
        const std::string file = adapter_ + "/adapter_model.safetensors";
        ASSERT_TRUE(WriteFile(file, SafetensorsFile(tensors)).ok());
    }
    void ExpectGolden(const std::string& model, const Words& flags) {
        std::string tokens;
        for (const int32_t token : Peft().Tokens(GetParam())) {
            tokens += (tokens.empty() ? "" : ",") + std::to_string(token);
        }
        const std::string npy = dir_ / "logits.npy";
        const Ran ran = RunWeft(Words{"logits", model, "--tokens", tokens, "--npy", npy, "--all",
                                      "--reference", "-t", "1", "--kv-dtype", "f32"} +
                                flags);
        ASSERT_EQ(ran.status, 0) << ran.err;
        const std::vector<float> expected = Peft().Floats(GetParam() + "/logits");
        const Matrix got = ReadNpy(npy);
        ASSERT_EQ(got.data.size(), expected.size());
        EXPECT_LE(RelativeL2(got.data, expected), kLoraGoldenBound);
    }

    test::TempDir dir_;
    const std::string model_ = dir_ / "model", adapter_ = dir_ / "adapter";
};

// Adapters that change norms of heads must be merged.
bool OnlyMerged(const std::string& name) {
    return name.starts_with("merged");
}
// Adapters that do more than add to the matrices of layers are not trained.
bool IsTrained(const std::string& name) {
    return !OnlyMerged(name) && !name.starts_with("applied");
}

TEST_P(LoraGolden, LogitsAreThoseOfPeft) {
    if (OnlyMerged(GetParam())) {
        const Ran ran = RunWeft({"logits", model_, "--tokens", "3,4", "--lora", adapter_});
        EXPECT_EQ(ran.status, 1);
        EXPECT_NE(ran.err.find("'weft merge MODEL --lora DIR -o OUT'"), std::string::npos)
            << ran.err;
    } else {
        ExpectGolden(model_, {"--lora", adapter_});
    }
    const std::string merged = dir_ / "merged.gguf";
    const Ran ran =
        RunWeft({"merge", model_, "--lora", adapter_, "-o", merged, "--save-type", "F32"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    ExpectGolden(merged, {});
}

// Models whose folder Weft cannot make from its own tensors: the other tensors are copied.
class MergedFolder : public LoraGolden {};

TEST_P(MergedFolder, HasTheLogitsOfPeft) {
    const std::string merged = dir_ / "merged";
    const Ran ran = RunWeft({"merge", model_, "--lora", adapter_, "-o", merged, "--save-format",
                             "hf", "--save-type", "F32"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    ExpectGolden(merged, {});
    const auto text = [](const std::string& path) {
        return nlohmann::json::parse(std::ifstream(path));
    };
    const nlohmann::json config = text(merged + "/config.json"),
                         was = text(model_ + "/config.json");
    EXPECT_EQ(config["architectures"], was["architectures"]);
    const auto files = model_files::hf::TensorFiles::Open(merged);
    ASSERT_TRUE(files.ok()) << files.error().message;
    for (const auto& [name, tensor] : Peft().Tensors(GetParam())) {
        const model_files::hf::SafeTensor* found = files->Find(name);
        ASSERT_NE(found, nullptr) << name;
        EXPECT_EQ(found->shape, tensor.shape) << name;
        if (name.find("vision") == name.npos && !name.starts_with("mtp.")) continue;
        std::vector<std::byte> bytes(found->bytes);
        ASSERT_TRUE(files->file(*found).ReadAt(found->offset, bytes).ok());
        EXPECT_EQ(bytes, tensor.data) << name;
    }
}

INSTANTIATE_TEST_SUITE_P(Peft, MergedFolder,
                         testing::Values("ofGptOss", "latent", "appliedPictures", "appliedDeltas",
                                         "appliedDeltasTogether", "appliedFalconH1",
                                         "mergedLatents", "appliedDeltasTied", "appliedDeltasWhole",
                                         "appliedDeltasTokens", "appliedBloomTied", "appliedGpt2",
                                         "appliedExpertsOfGptOss"));

class TrainableGolden : public LoraGolden {};

// The adapter that training writes after no update.
TEST_P(TrainableGolden, IsTheSameWhenWrittenAgain) {
    model_files::LoraOptions words;
    words.from = adapter_;
    auto base = model_files::OpenModel(model_);
    ASSERT_TRUE(base.ok()) << base.error().message;
    auto trained = train::WithAdapters(*std::move(base), words);
    ASSERT_TRUE(trained.ok()) << trained.error().message;
    const auto plan = model_files::PlanLora(**trained, words);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const auto files = model_files::PlanAdapter(**trained, *plan, "base");
    ASSERT_TRUE(files.ok()) << files.error().message;
    const Status written = model_files::WriteAdapter(**trained, *files, dir_ / "again");
    ASSERT_TRUE(written.ok()) << written.error().message;
    ExpectGolden(model_, {"--lora", dir_ / "again"});
    // PEFT adapts exactly the modules of the file's target_modules.
    model_files::LoraOptions again;
    again.from = dir_ / "again";
    const auto replanned = model_files::PlanLora(**trained, again);
    ASSERT_TRUE(replanned.ok()) << replanned.error().message;
    EXPECT_EQ(replanned->Modules(), plan->Modules());
}

std::vector<std::string> TrainableCases() {
    std::vector<std::string> names = PeftCases();
    std::erase_if(names, [](const std::string& name) { return !IsTrained(name); });
    return names;
}

INSTANTIATE_TEST_SUITE_P(Peft, LoraGolden, testing::ValuesIn(PeftCases()),
                         [](const auto& one) { return one.param; });
INSTANTIATE_TEST_SUITE_P(Peft, TrainableGolden, testing::ValuesIn(TrainableCases()),
                         [](const auto& one) { return one.param; });

model_files::LoraPlan PlanOf(const std::string& model, const model_files::LoraOptions& words,
                             model_files::LoraUse use = model_files::LoraUse::kTrain) {
    const auto source = model_files::OpenModel(model);
    EXPECT_TRUE(source.ok()) << source.error().message;
    if (!source.ok()) return {};
    auto plan = model_files::PlanLora(**source, words, use);
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    return plan.ok() ? *std::move(plan) : model_files::LoraPlan();
}

// A module that Weft holds as several matrices: each layer has it.
TEST(LoraNames, AFileWithoutALayerIsNotWhole) {
    const test::TempDir dir;
    Peft().Write("mergedLatents", dir / "model");
    const std::string adapter = dir / "adapter";
    std::filesystem::create_directories(adapter);
    WriteText(adapter + "/adapter_config.json", Peft().Text("mergedLatents.adapter/config"));
    auto tensors = Peft().Tensors("mergedLatents.adapter");
    std::erase_if(tensors, [](const auto& entry) {
        return entry.first.find("layers.1.self_attn.kv_b_proj") != std::string::npos;
    });
    ASSERT_TRUE(WriteFile(adapter + "/adapter_model.safetensors", SafetensorsFile(tensors)).ok());
    const Ran ran = RunWeft({"merge", dir / "model", "--lora", adapter, "-o", dir / "m.gguf"});
    EXPECT_EQ(ran.status, 1);
    EXPECT_NE(ran.err.find("kv_b_proj.lora_A.weight' is missing"), std::string::npos) << ran.err;
}

// The class in transformers lacks the layers that predict tokens beyond the next: training leaves
// them out, and so does an adapter of an older Weft.
TEST(LoraNames, DraftLayersHaveNoAdapters) {
    const test::TempDir dir;
    Peft().Write("besideDrafts", dir / "model");
    model_files::LoraOptions fresh;
    fresh.rank = 2;
    const model_files::LoraPlan made = PlanOf(dir / "model", fresh);
    EXPECT_FALSE(made.targets.empty());
    for (const model_files::LoraTarget& target : made.targets) {
        EXPECT_FALSE(target.tensor.starts_with("blk.2.")) << target.tensor;
    }
    auto tensors = Peft().Tensors("besideDrafts.adapter");
    for (const char* part : {"lora_A", "lora_B"}) {
        const std::string end = fmt::format(".self_attn.q_proj.{}.weight", part);
        tensors["base_model.model.model.layers.2" + end] =
            tensors.at("base_model.model.model.layers.1" + end);
    }
    model_files::LoraOptions older;
    older.from = dir / "adapter";
    std::filesystem::create_directories(older.from);
    WriteText(older.from + "/adapter_config.json", Peft().Text("besideDrafts.adapter/config"));
    ASSERT_TRUE(
        WriteFile(older.from + "/adapter_model.safetensors", SafetensorsFile(tensors)).ok());
    const model_files::LoraPlan read = PlanOf(dir / "model", older);
    EXPECT_EQ(read.targets.size(), 4u);
    EXPECT_EQ(read.left_out, std::set<std::string>{"model.layers.2."});
    EXPECT_TRUE(model_files::AdapterFile::Open(read).ok());
}

// PEFT gives modules with the names of experts' modules no adapter by target_modules.
TEST(LoraNames, ModulesThatExpertsHaveTooAreParameters) {
    const test::TempDir dir;
    Peft().Write("parameters", dir / "model");
    model_files::LoraOptions words;
    words.rank = 2;
    words.targets = "q_proj,v_proj,gate_proj,up_proj,down_proj";
    auto base = model_files::OpenModel(dir / "model");
    ASSERT_TRUE(base.ok()) << base.error().message;
    auto trained = train::WithAdapters(*std::move(base), words);
    ASSERT_TRUE(trained.ok()) << trained.error().message;
    const model_files::LoraPlan plan = PlanOf(dir / "model", words);
    const auto files = model_files::PlanAdapter(**trained, plan, "base");
    ASSERT_TRUE(files.ok()) << files.error().message;
    const auto config = nlohmann::json::parse(files->config);
    EXPECT_EQ(config["target_modules"], (nlohmann::json{"q_proj", "v_proj"}));
    const auto peft = nlohmann::json::parse(Peft().Text("parameters.adapter/config"));
    const std::set<std::string> ends = peft["target_parameters"];
    std::set<std::string> met;
    for (const std::string name : config["target_parameters"]) {
        const auto end =
            std::ranges::find_if(ends, [&](const std::string& one) { return name.ends_with(one); });
        ASSERT_NE(end, ends.end()) << name;
        met.insert(*end);
    }
    EXPECT_EQ(met, ends);
    std::set<std::string> names;
    for (const auto& tensor : files->tensors) names.insert(tensor.saved);
    for (const auto& [name, tensor] : Peft().Tensors("parameters.adapter")) {
        EXPECT_TRUE(names.contains(name)) << name;
    }
}

// Adapters of other parts than the text model are left out with one warning.
TEST(LoraNames, OtherPartsAreLeftOutWithOneWarning) {
    const test::TempDir dir;
    Peft().Write("appliedPictures", dir / "model");
    WriteText(dir / "model/tokenizer.json", SmallTokenizer());
    std::filesystem::create_directories(std::string(dir / "adapter"));
    WriteText(dir / "adapter/adapter_config.json", Peft().Text("appliedPictures.adapter/config"));
    auto tensors = Peft().Tensors("appliedPictures.adapter");
    const auto write = [&] {
        const std::string file = dir / "adapter/adapter_model.safetensors";
        ASSERT_TRUE(WriteFile(file, SafetensorsFile(tensors)).ok());
    };
    write();
    const Words words = {"logits", dir / "model",   "--tokens", "3,4",
                         "--lora", dir / "adapter", "--local",  "2"};
    const Ran ran = RunWeft(words);
    EXPECT_EQ(ran.status, 0) << ran.err;
    const std::string said = "tensors for multi_modal_projector, vision_tower";
    const size_t at = ran.err.find(said);
    EXPECT_NE(at, std::string::npos) << ran.err;
    EXPECT_EQ(ran.err.find(said, at + 1), std::string::npos) << ran.err;
    std::erase_if(tensors, [](const auto& entry) {
        return entry.first.find("language_model") != std::string::npos;
    });
    write();
    auto config = nlohmann::json::parse(Peft().Text("appliedPictures.adapter/config"));
    config["target_modules"] = ".*vision_tower.*proj";
    WriteText(dir / "adapter/adapter_config.json", config.dump());
    const Ran none = RunWeft(words);
    EXPECT_EQ(none.status, 1);
    EXPECT_NE(none.err.find("It has no others"), std::string::npos) << none.err;
}

// Names without "base_model.model." or "model.", with the adapter's name, or of a compiled model.
TEST(LoraNames, OtherSpellingsAreTheSameAdapter) {
    const test::TempDir dir;
    const std::string model = dir / "model";
    Peft().Write("ranks", model);
    WriteText(model + "/tokenizer.json", SmallTokenizer());
    auto source = model_files::OpenModel(model);
    ASSERT_TRUE(source.ok()) << source.error().message;
    const auto replaced = [](std::string name, std::string_view from, std::string_view to) {
        const size_t at = name.find(from);
        return at == name.npos ? name : name.replace(at, from.size(), to);
    };
    const std::pair<const char*, const char*> spellings[] = {
        {"base_model.model.", ""},
        {"base_model.model.model.", "base_model.model."},
        {"base_model.model.model.", ""},
        {".weight", ".default.weight"},
        {"base_model.model.", "base_model.model._orig_mod."},
        {"model.layers", "model.language_model.layers"}};
    for (const auto& [from, to] : spellings) {
        SCOPED_TRACE(fmt::format("{} -> {}", from, to));
        std::map<std::string, SafeBytes> tensors;
        for (const auto& [name, tensor] : Peft().Tensors("ranks.adapter")) {
            tensors[replaced(name, from, to)] = tensor;
        }
        std::filesystem::create_directories(std::string(dir / "adapter"));
        WriteText(dir / "adapter/adapter_config.json", Peft().Text("ranks.adapter/config"));
        ASSERT_TRUE(
            WriteFile(dir / "adapter/adapter_model.safetensors", SafetensorsFile(tensors)).ok());
        model_files::LoraOptions words;
        words.from = dir / "adapter";
        const auto plan = model_files::PlanLora(**source, words);
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        EXPECT_EQ(plan->targets.size(), 14u);
        const auto file = model_files::AdapterFile::Open(*plan);
        EXPECT_TRUE(file.ok()) << file.error().message;
        for (const model_files::LoraTarget& target : plan->targets) {
            const bool query = target.module.ends_with("q_proj");
            EXPECT_TRUE(!query || target.rank == 2) << target.module;
        }
    }
}

// adapter_model.bin, as PEFT wrote before safetensors.
TEST(LoraNames, AFileOfTorchIsTheSameAdapter) {
    const test::TempDir dir;
    Peft().Write("layers", dir / "model");
    auto source = model_files::OpenModel(dir / "model");
    ASSERT_TRUE(source.ok()) << source.error().message;
    std::filesystem::create_directories(std::string(dir / "one"));
    std::filesystem::create_directories(std::string(dir / "two"));
    std::filesystem::copy_file(TestData("/lora_golden.bin"), dir / "one/adapter_model.bin");
    const auto tensors = SafetensorsFile(Peft().Tensors("layers.adapter"));
    ASSERT_TRUE(WriteFile(dir / "two/adapter_model.safetensors", tensors).ok());
    std::vector<std::vector<float>> values;
    for (const char* name : {"one", "two"}) {
        model_files::LoraOptions words;
        words.from = dir / name;
        WriteText(words.from + "/adapter_config.json", Peft().Text("layers.adapter/config"));
        const auto plan = model_files::PlanLora(**source, words);
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        EXPECT_EQ(plan->targets.size(), 2u);
        const auto file = model_files::AdapterFile::Open(*plan);
        ASSERT_TRUE(file.ok()) << file.error().message;
        for (const model_files::LoraTarget& target : plan->targets) {
            std::vector<float>& b =
                values.emplace_back(static_cast<size_t>(target.rows * target.rank));
            ASSERT_TRUE(file->Read(target, true, 0, target.rows, b).ok());
        }
    }
    ASSERT_EQ(values.size(), 4u);
    EXPECT_EQ(values[0], values[2]);
    EXPECT_EQ(values[1], values[3]);
}

}  // namespace
}  // namespace weft::support
