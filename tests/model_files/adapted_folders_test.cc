// Adapters beside the folders of every family: the model with an adapter is the folder whose
// matrices have the adapter's products added.
#include <gtest/gtest.h>

#include <set>

#include "model_files/lora/merged_source.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/temp_dir.h"
#include "tensor/quant.h"

namespace weft::model_files {
namespace {

using support::SafeBytes;
using Tensors = std::map<std::string, SafeBytes>;

constexpr int64_t kRank = 3;
constexpr float kScale = 2;
constexpr std::string_view kWeight = ".weight";

std::vector<float> FloatsOf(const SafeBytes& tensor) {
    const DType type = tensor.dtype == "BF16"  ? DType::kBF16
                       : tensor.dtype == "F16" ? DType::kF16
                                               : DType::kF32;
    std::vector<float> values(tensor.data.size() / (type == DType::kF32 ? 4 : 2));
    DequantizeRow(type, tensor.data, values);
    return values;
}

std::vector<float> Values(const std::string& name, int64_t count) {
    std::vector<float> values;
    const support::Stream stream(name);
    for (int64_t i = 0; i < count; ++i) {
        values.push_back(static_cast<float>(stream[static_cast<size_t>(i)]));
    }
    return values;
}

// Matrices that no adapter changes: the model has them in another order, or PEFT adapts none.
struct Refused {
    std::string_view family;  // "*": all that begin so
    std::string_view end;     // how it begins
};
constexpr Refused kRefused[] = {{"longcatFlash", ""},
                                {"hyV4*", "self_attn.indexer.wk"},
                                {"hyV4*", "self_attn.indexer.wq_b"},
                                {"hyV4*", "self_attn.kv_"},
                                {"hyV4*", "self_attn.linear_gate"},
                                {"hyV4*", "self_attn.q_b"},
                                {"deepseekV3Halves", "self_attn.kv_a"},
                                {"deepseekV3Halves", "self_attn.q_b"},
                                {"deepseekV4", "ffn.gate"},
                                {"graniteMoeWindows", "block_sparse_moe.router"},
                                {"mamba2", "mixer.out_proj"},
                                {"nemotronH*", "mixer.out_proj"},
                                {"hyV4", "mlp.gate_proj"},
                                {"hyV4", "mlp.shared_experts.gate_proj"}};

bool IsRefused(std::string_view family, std::string_view end) {
    return std::ranges::any_of(kRefused, [&](const Refused& one) {
        const bool all = one.family.ends_with('*');
        const std::string_view begin = one.family.substr(0, one.family.size() - (all ? 1 : 0));
        return (all ? family.starts_with(begin) : family == begin) && end.starts_with(one.end);
    });
}

class AdaptedFolders : public testing::TestWithParam<std::string> {
  protected:
    AdaptedFolders()
        : golden_(support::TestData("/families/" + GetParam() + ".safetensors")),
          tensors_(golden_.Tensors(GetParam())) {
        WriteFolder("base", tensors_);
        config_ = nlohmann::json::parse(golden_.Text(GetParam() + "/config"));
    }

    void WriteFolder(const std::string& name, const Tensors& tensors) const {
        std::filesystem::create_directories(dir_ / name);
        support::WriteText((dir_ / name) + "/config.json", golden_.Text(GetParam() + "/config"));
        support::WriteText((dir_ / name) + "/tokenizer.json", support::SmallTokenizer());
        support::WriteTensors(dir_ / name, tensors);
    }

    // GPT-2's matrices are [in, out].
    bool IsTurned(const std::string& module) const {
        const std::string type = config_["model_type"];
        return (type == "gpt2" || type == "openai-gpt") && module.find(".c_") != std::string::npos;
    }

    // Adds A and B for the module to `adapter`, and their product to its matrix in `merged`.
    void Adapt(const std::string& module, Tensors& adapter, Tensors& merged) const {
        SafeBytes& matrix = merged.at(module + std::string(kWeight));
        const bool turned = IsTurned(module);
        const int64_t rows = matrix.shape[turned ? 1 : 0], cols = matrix.shape[turned ? 0 : 1];
        const std::string name = "base_model.model." + module;
        const std::vector<float> a = Values(name + "a", kRank * cols),
                                 b = Values(name + "b", rows * kRank);
        adapter[name + ".lora_A.weight"] = {"F32", {kRank, cols}, support::BytesOfValues(a)};
        adapter[name + ".lora_B.weight"] = {"F32", {rows, kRank}, support::BytesOfValues(b)};
        std::vector<float> values = FloatsOf(matrix);
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t col = 0; col < cols; ++col) {
                double sum = 0;
                for (int64_t r = 0; r < kRank; ++r) {
                    sum += static_cast<double>(b[static_cast<size_t>(row * kRank + r)]) *
                           a[static_cast<size_t>(r * cols + col)];
                }
                const int64_t at = turned ? col * rows + row : row * cols + col;
                values[static_cast<size_t>(at)] += static_cast<float>(kScale * sum);
            }
        }
        matrix = {"F32", matrix.shape, support::BytesOfValues(values)};
    }

    // ends: EndOf the matrices.
    void WriteAdapter(const std::string& name, const Tensors& tensors,
                      const std::set<std::string>& ends) const {
        std::filesystem::create_directories(dir_ / name);
        support::WriteTensors(dir_ / name, tensors);
        std::filesystem::rename((dir_ / name) + "/model.safetensors",
                                (dir_ / name) + "/adapter_model.safetensors");
        const nlohmann::json config = {{"peft_type", "LORA"},
                                       {"r", kRank},
                                       {"lora_alpha", kScale * kRank},
                                       {"target_modules", ends}};
        support::WriteText((dir_ / name) + "/adapter_config.json", config.dump());
    }

    void WriteWith(const std::string& name, const Tensors& tensors, const nlohmann::json& more,
                   const std::string& module) const {
        WriteAdapter(name, tensors, {module});
        const std::string path = (dir_ / name) + "/adapter_config.json";
        nlohmann::json config = nlohmann::json::parse(*ReadTextFile(path));
        config.update(more);
        support::WriteText(path, config.dump());
    }

    // The first module of these names; "": none.
    std::string FindModule(std::initializer_list<const char*> names) const {
        for (const auto& [name, tensor] : tensors_) {
            if (!name.ends_with(kWeight) || name.find("vis") != name.npos) continue;
            const std::string module = name.substr(0, name.size() - kWeight.size());
            const std::string last = module.substr(module.rfind('.') + 1);
            if (std::ranges::find(names, last) != names.end()) return module;
        }
        return "";
    }

    // Compares a tensor of the adapter's model with that of the folder "merged"; `other`: its name
    // there, if the folder has one matrix for both ends.
    void ExpectSame(const std::string& adapter, const std::string& tensor,
                    const std::string& other = "") const {
        SCOPED_TRACE(adapter + " " + tensor);
        const auto got = Merged(adapter);
        ASSERT_TRUE(got.ok()) << got.error().message;
        const auto expected = OpenModel(dir_ / "merged");
        ASSERT_TRUE(expected.ok()) << expected.error().message;
        const TensorInfo* const a = (*got)->FindTensor(tensor);
        const TensorInfo* b = (*expected)->FindTensor(tensor);
        if (b == nullptr) b = (*expected)->FindTensor(other);
        ASSERT_TRUE(a != nullptr && b != nullptr);
        const ModelSource& merged = **got;
        const auto x = merged.ReadFloats(*a), y = (*expected)->ReadFloats(*b);
        ASSERT_TRUE(x.ok() && y.ok() && x->size() == y->size());
        double most = 0, size = 0;
        for (size_t i = 0; i < x->size(); ++i) {
            most = std::max<double>(most, std::abs((*x)[i] - (*y)[i]));
            size = std::max<double>(size, std::abs((*y)[i]));
        }
        EXPECT_LE(most, 1e-6 * size);
    }

    Result<std::unique_ptr<MergedSource>> Merged(const std::string& adapter) const {
        WEFT_ASSIGN(auto model, OpenModel(dir_ / "base"));
        return MergedSource::Make(std::move(model), dir_ / adapter);
    }

    // "self_attn.q_proj" of "model.layers.3.self_attn.q_proj.weight"; "": not a matrix of a layer.
    static std::string EndOf(const std::string& name, const SafeBytes& tensor) {
        if (!name.ends_with(kWeight) || tensor.shape.size() != 2) return "";
        for (const char* other : {"visual", "vision", "norm", "altup_"}) {
            if (name.find(other) != name.npos) return "";
        }
        for (size_t at = name.find('.'); at != name.npos; at = name.find('.', at + 1)) {
            const size_t end = name.find_first_not_of("0123456789", at + 1);
            if (end == name.npos || end == at + 1 || name[end] != '.') continue;
            return name.substr(end + 1, name.size() - kWeight.size() - end - 1);
        }
        return "";
    }

    void AdaptAll(const std::string& end, Tensors& adapter, Tensors& merged) const {
        for (const auto& [name, tensor] : tensors_) {
            if (EndOf(name, tensor) != end) continue;
            Adapt(name.substr(0, name.size() - kWeight.size()), adapter, merged);
        }
    }

    Result<std::unique_ptr<MergedSource>> Adapted(const std::set<std::string>& ends,
                                                  Tensors& merged) const {
        Tensors adapter;
        for (const std::string& end : ends) AdaptAll(end, adapter, merged);
        WriteAdapter("adapter", adapter, ends);
        return Merged("adapter");
    }

    support::HfGolden golden_;
    Tensors tensors_;
    nlohmann::json config_;
    test::TempDir dir_;
};

TEST_P(AdaptedFolders, AreTheMergedFolders) {
    std::set<std::string> modules;
    for (const auto& [name, tensor] : tensors_) {
        const std::string end = EndOf(name, tensor);
        if (end.empty()) continue;
        if (!IsRefused(GetParam(), end)) {
            modules.insert(end);
            continue;
        }
        Tensors unused = tensors_;
        const auto refused = Adapted({end}, unused);
        ASSERT_FALSE(refused.ok()) << "drop it from the list: " << end;
        EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported) << refused.error().message;
    }
    if (modules.empty()) return;
    Tensors whole = tensors_;
    const auto got = Adapted(modules, whole);
    ASSERT_TRUE(got.ok()) << got.error().message;
    WriteFolder("merged", whole);
    const auto expected = OpenModel(dir_ / "merged");
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    const ModelSource& merged = **got;
    for (const TensorInfo& tensor : (*expected)->tensors()) {
        const TensorInfo* const other = merged.FindTensor(tensor.name);
        ASSERT_NE(other, nullptr) << tensor.name;
        const auto a = merged.ReadFloats(*other), b = (*expected)->ReadFloats(tensor);
        ASSERT_TRUE(a.ok() && b.ok()) << tensor.name;
        ASSERT_EQ(a->size(), b->size()) << tensor.name;
        float most = 0;
        for (size_t i = 0; i < a->size(); ++i) most = std::max(most, std::abs((*a)[i] - (*b)[i]));
        EXPECT_LE(most, 1e-5) << tensor.name;
    }
}

std::vector<float> Turned(const SafeBytes& matrix) {
    const std::vector<float> values = FloatsOf(matrix);
    const auto rows = static_cast<size_t>(matrix.shape[0]),
               cols = static_cast<size_t>(matrix.shape[1]);
    std::vector<float> turned(values.size());
    for (size_t row = 0; row < rows; ++row) {
        for (size_t col = 0; col < cols; ++col) turned[col * rows + row] = values[row * cols + col];
    }
    return turned;
}

// As A and B, as a whole matrix, and as rows of tokens, whatever the embedding's name and factor.
TEST_P(AdaptedFolders, EmbeddingsAreThoseOfTheMergedFolders) {
    const std::string module =
        FindModule({"embed_tokens", "wte", "embeddings", "embedding", "word_embeddings", "embed_in",
                    "tok_embeddings", "tokens_embed"});
    if (module.empty()) return;
    const std::string name = "base_model.model." + module, own = module + std::string(kWeight);
    Tensors linear, adapter, whole = tensors_;
    Adapt(module, linear, whole);
    WriteFolder("merged", whole);
    const SafeBytes a = linear.at(name + ".lora_A.weight"), b = linear.at(name + ".lora_B.weight");
    const Tensors embedding = {{name + ".lora_embedding_A",
                                {"F32", {kRank, b.shape[0]}, support::BytesOfValues(Turned(b))}},
                               {name + ".lora_embedding_B",
                                {"F32", {a.shape[1], kRank}, support::BytesOfValues(Turned(a))}}};
    WriteAdapter("pairs", embedding, {module});
    ExpectSame("pairs", "token_embd.weight");

    std::string layer;
    for (const auto& [tensor, values] : tensors_) {
        const std::string end = EndOf(tensor, values);
        if (!end.empty() && !IsRefused(GetParam(), end)) layer = tensor;
    }
    if (layer.empty()) return;
    layer.resize(layer.size() - kWeight.size());
    Tensors one, unused = tensors_;
    Adapt(layer, one, unused);
    Tensors saved = one, rows = one;
    saved[name + ".weight"] = whole.at(own);
    // (PEFT ignores names that no layer has, and accepts names of containers.)
    const std::string last = module.substr(module.rfind('.') + 1);
    WriteWith("saved", saved, {{"modules_to_save", {last, "a_module_of_others", "score"}}}, layer);
    ExpectSame("saved", "token_embd.weight");
    WriteWith("lost", one, {{"modules_to_save", {last}}}, layer);
    const auto lost = Merged("lost");
    ASSERT_FALSE(lost.ok());
    EXPECT_EQ(lost.error().code, ErrorCode::kCorrupt) << lost.error().message;

    const SafeBytes& table = whole.at(own);
    const int64_t cols = table.shape[1];
    const std::vector<float> values = FloatsOf(table);
    std::vector<float> before = FloatsOf(tensors_.at(own)), deltas;
    for (const int64_t token : {3, 1}) {
        const auto from = values.begin() + token * cols;
        deltas.insert(deltas.end(), from, from + cols);
        std::copy_n(from, cols, before.begin() + token * cols);
    }
    rows[name + std::string(kTokenRows)] = {"F32", {2, cols}, support::BytesOfValues(deltas)};
    WriteWith("rows", rows, {{"trainable_token_indices", {3, 1}}}, layer);
    Tensors some = tensors_;
    some[own] = {"F32", table.shape, support::BytesOfValues(before)};
    WriteFolder("merged", some);
    ExpectSame("rows", "token_embd.weight");
    const std::string head = FindModule({"lm_head", "embed_out", "output_projection", "output"});
    if (head.empty()) ExpectSame("rows", "output.weight", "token_embd.weight");
}

TEST_P(AdaptedFolders, OutputsAreThoseOfTheMergedFolders) {
    const std::string module = FindModule({"lm_head", "embed_out", "output_projection", "output"});
    if (module.empty()) return;
    Tensors adapter, whole = tensors_;
    Adapt(module, adapter, whole);
    WriteAdapter("pairs", adapter, {module});
    WriteFolder("merged", whole);
    ExpectSame("pairs", "output.weight");
}

TEST_P(AdaptedFolders, MatricesOutsideOfLayersAreThoseOfTheMergedFolders) {
    constexpr std::pair<const char*, const char*> kParts[] = {
        {"altup_projections.", "altup_proj"},
        {"altup_unembed_projections.", "altup_unembd_proj"},
        {"per_layer_model_projection.", "per_layer_model_proj"},
        {"project_in.", "token_embd_proj"},
        {"project_out.", "output_proj"}};
    Tensors adapter, whole = tensors_;
    std::set<std::string> changed;
    for (const auto& [name, tensor] : tensors_) {
        for (const auto& [part, gguf] : kParts) {
            if (name.find(part) == name.npos) continue;
            Adapt(name.substr(0, name.size() - kWeight.size()), adapter, whole);
            changed.insert(gguf + std::string(kWeight));
        }
    }
    if (changed.empty()) return;
    WriteAdapter("outside", adapter, changed);
    WriteFolder("merged", whole);
    for (const std::string& tensor : changed) ExpectSame("outside", tensor);
}

// A matrix that the folder has turned replaces none here.
TEST(TurnedFolder, ModulesThatReplaceItAreRefused) {
    const support::HfGolden golden(support::TestData("/families/gpt2.safetensors"));
    const test::TempDir dir;
    golden.Write("gpt2", dir / "base");
    support::WriteText(dir / "base/tokenizer.json", support::SmallTokenizer());
    const std::string module = "transformer.h.0.attn.c_proj.weight";
    const SafeBytes matrix = golden.Tensors("gpt2").at(module);
    const int64_t rows = matrix.shape[1], cols = matrix.shape[0];
    const std::string adapter = "base_model.model.transformer.h.0.mlp.c_fc.lora_";
    const int64_t wide = golden.Tensors("gpt2").at("transformer.h.0.mlp.c_fc.weight").shape[1];
    std::filesystem::create_directories(dir / "adapter");
    const Tensors tensors = {
        {adapter + "A.weight", {"F32", {2, cols}, support::BytesOfValues(Values("a", 2 * cols))}},
        {adapter + "B.weight", {"F32", {wide, 2}, support::BytesOfValues(Values("b", 2 * wide))}},
        {"base_model.model." + module,
         {"F32", {cols, rows}, support::BytesOfValues(Values("w", rows * cols))}}};
    ASSERT_TRUE(
        WriteFile(dir / "adapter/adapter_model.safetensors", support::SafetensorsFile(tensors))
            .ok());
    support::WriteText(dir / "adapter/adapter_config.json",
                       R"({"r": 2, "target_modules": ["transformer.h.0.mlp.c_fc"],
                           "modules_to_save": ["transformer.h.0.attn.c_proj"]})");
    auto model = OpenModel(dir / "base");
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto merged = MergedSource::Make(*std::move(model), dir / "adapter");
    ASSERT_FALSE(merged.ok());
    EXPECT_EQ(merged.error().code, ErrorCode::kUnsupported) << merged.error().message;
}

INSTANTIATE_TEST_SUITE_P(Families, AdaptedFolders, testing::ValuesIn(support::CasesIn("/families")),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace weft::model_files
