// Every family with every layout of quantized weights, and with each size of config.json one too
// small and one too large: the same values, or an error, but never a failed check. And every family
// from a part of its file.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <set>

#include "hub/part.h"
#include "model/model.h"
#include "model_files/weight_file.h"
#include "support/hf_quantize.h"
#include "support/nightly.h"
#include "support/temp_dir.h"
#include "tensor/quant.h"

namespace weft::support {
namespace {

using Json = nlohmann::json;
using Tensors = std::map<std::string, SafeBytes>;

struct FamilyCase {
    std::string name;
    Json config;
    Tensors tensors;
};

// Calls test(case, index) for each tiny folder that transformers has run; daily, for one of `of`.
template <typename Test>
void ForEachFamily(size_t of, const Test& test) {
    std::vector<std::string> files = {TestData("/hf_golden.safetensors")};
    for (const char* folder : {"/hf", "/families", "/encoders"}) {
        for (const std::string& name : CasesIn(folder)) {
            files.push_back(TestData(fmt::format("{}/{}.safetensors", folder, name)));
        }
    }
    size_t index = 0;
    for (const std::string& file : files) {
        const HfGolden golden(file);
        for (const std::string& name : golden.Cases()) {
            if (!weft::test::InTurn(index++, of)) continue;
            test(FamilyCase{name, Json::parse(golden.Text(name + "/config")), golden.Tensors(name)},
                 index);
        }
    }
}

// The error of opening, reading all weights and planning; empty: none.
std::string ErrorOf(const std::string& folder) {
    const auto source = model_files::hf::OpenFolder(folder);
    if (!source.ok()) return source.error().message;
    for (const model_files::TensorInfo& tensor : (*source)->tensors()) {
        std::vector<std::byte> bytes(tensor.bytes);
        const Status read =
            (*source)->ReadRows(tensor, 0, tensor.rows, 0, tensor.cols, bytes, nullptr);
        if (!read.ok()) return read.error().message;
    }
    const auto hyper = model::ReadHyper(**source);
    if (!hyper.ok()) return hyper.error().message;
    const auto plan = model::PlanShards(*hyper, **source, {});
    if (!plan.ok()) return plan.error().message;
    const auto program = model::BuildProgram(*hyper, plan->shards[0], **source, {});
    return program.ok() ? "" : program.error().message;
}

// Runs `test` in a child process, which notes what it does. Fails if a signal ends the child.
template <typename Test>
void ExpectNoSignal(const Test& test) {
    constexpr size_t kNoteBytes = 4096;
    void* const shared =
        ::mmap(nullptr, kNoteBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    char* const note = static_cast<char*>(shared);
    const auto failures = [] {
        return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
    };
    const pid_t child = ::fork();
    if (child == 0) {
        const int before = failures();
        test([&](const std::string& text) { std::snprintf(note, kNoteBytes, "%s", text.c_str()); });
        ::_exit(failures() > before ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << note;
    ::munmap(shared, kNoteBytes);
}

// Whether quantizers would pack this tensor.
bool IsLinearWeight(const std::string& name, const SafeBytes& tensor, HfLayout layout) {
    if (!name.ends_with(".weight") || tensor.shape.size() != 2) return false;
    const bool by_row = layout == HfLayout::kPacked4 || layout == HfLayout::kPacked8;
    if (tensor.shape[0] % (by_row ? 1 : 32) != 0 || tensor.shape[1] % 32 != 0) return false;
    for (const char* other : {"norm", "embed", "emb.", "wte", "wpe", "head", "conv", "router",
                              "position", "score", "pooler", "word_"}) {
        if (name.find(other) != name.npos) return false;
    }
    return true;
}

std::vector<float> FloatsOf(const SafeBytes& tensor) {
    std::vector<float> values(tensor.data.size() / (tensor.dtype == "F32" ? 4 : 2));
    const DType dtype = tensor.dtype == "F32"   ? DType::kF32
                        : tensor.dtype == "F16" ? DType::kF16
                                                : DType::kBF16;
    DequantizeRow(dtype, tensor.data, values);
    return values;
}

// The modules of `one` in a layout, in `packed`, and the same values as floats, in `plain`.
void Quantize(const FamilyCase& one, HfLayout layout, Tensors& packed, Tensors& plain) {
    const std::set<std::string> conv1d = {"gpt2", "openaiGpt"};  // plain weights are [in, out]
    const bool turned = conv1d.contains(one.name);
    packed = plain = one.tensors;
    for (const auto& [tensor, bytes] : one.tensors) {
        if (!IsLinearWeight(tensor, bytes, layout)) continue;
        // (In these sizes, a part of Weft's matrix is smaller than a block.)
        const bool part = one.name.starts_with("olmoHybrid") || one.name.starts_with("qwen35");
        if (part && tensor.find("linear_attn.") != tensor.npos) continue;
        auto rows = static_cast<size_t>(bytes.shape[0]), cols = static_cast<size_t>(bytes.shape[1]);
        std::vector<float> values = FloatsOf(bytes);
        if (turned) {
            values = Turned(values, rows, cols);
            std::swap(rows, cols);
        }
        const std::string module = tensor.substr(0, tensor.rfind('.'));
        packed.erase(tensor);
        HfIntegers integers = IntegersOf(values, rows, cols, layout);
        AddIntegers(packed, module, integers, layout);
        values = std::move(integers.values);
        if (turned) values = Turned(values, rows, cols);
        plain[tensor] = {"F32", bytes.shape, BytesOfValues(values)};
    }
}

// Both folders have the same tensors. Rounding: of a matrix that is kept as BF16 values.
void ExpectSameValues(const std::string& packed, const std::string& plain) {
    const auto got = model_files::hf::OpenFolder(packed), want = model_files::hf::OpenFolder(plain);
    ASSERT_TRUE(want.ok()) << want.error().message;
    ASSERT_TRUE(got.ok()) << got.error().message;
    const auto floats = [](const model_files::ModelSource& source, const std::string& name) {
        const model_files::TensorInfo* tensor = source.FindTensor(name);
        if (tensor == nullptr) return std::vector<float>();
        std::vector<std::byte> bytes(tensor->bytes);
        EXPECT_TRUE(
            source.ReadRows(*tensor, 0, tensor->rows, 0, tensor->cols, bytes, nullptr).ok());
        std::vector<float> values(static_cast<size_t>(tensor->rows * tensor->cols));
        DequantizeRow(tensor->dtype, bytes, values);
        return values;
    };
    for (const model_files::TensorInfo& tensor : (*want)->tensors()) {
        if (tensor.dtype == DType::kI32) continue;
        // (Falcon-H1's factors are multiplied into plain weights, and beside packed ones.)
        const std::string base = tensor.name.substr(0, tensor.name.rfind('.'));
        if ((*got)->FindTensor(base + ".scale") != nullptr) continue;
        const std::vector<float> a = floats(**got, tensor.name), b = floats(**want, tensor.name);
        ASSERT_EQ(a.size(), b.size()) << tensor.name;
        for (size_t i = 0; i < a.size(); ++i) {
            ASSERT_TRUE(std::abs(a[i] - b[i]) <= 0x1p-8f * std::abs(b[i]))
                << tensor.name << " " << i;
        }
    }
}

TEST(HfFamilies, HaveTheSameValuesInEveryLayout) {
    constexpr HfLayout kLayouts[] = {HfLayout::kAwq, HfLayout::kGptq4, HfLayout::kGptq8,
                                     HfLayout::kPacked4, HfLayout::kPacked8};
    ForEachFamily(3, [&](const FamilyCase& one, size_t index) {
        if (one.config.contains("quantization_config")) return;
        for (const HfLayout layout : test::Some(kLayouts, 5, index)) {
            SCOPED_TRACE(fmt::format("{}, layout {}", one.name, static_cast<int>(layout)));
            ExpectNoSignal([&](const auto& note) {
                note("a folder of the layout");
                const test::TempDir packed, plain;
                Tensors of_packed, of_plain;
                Quantize(one, layout, of_packed, of_plain);
                Json config = one.config;
                WriteText(plain / "config.json", config.dump());
                WriteTensors(plain.path(), of_plain);
                config["quantization_config"] = QuantizationConfig(layout);
                WriteText(packed / "config.json", config.dump());
                WriteTensors(packed.path(), of_packed);
                ExpectSameValues(packed.path(), plain.path());
                EXPECT_EQ(ErrorOf(packed.path()).empty(), ErrorOf(plain.path()).empty());
            });
        }
    });
}

// Calls use(number) for each whole number of the JSON.
template <typename Use>
void ForEachNumber(Json& json, const Use& use) {
    if (json.is_number_integer()) {
        use(json);
    } else if (json.is_structured()) {
        for (Json& part : json) ForEachNumber(part, use);
    }
}

TEST(HfFamilies, SizesThatAreOffByOneFailNoCheck) {
    ForEachFamily(8, [&](const FamilyCase& one, size_t) {
        SCOPED_TRACE(one.name);
        ExpectNoSignal([&](const auto& note) {
            const test::TempDir dir;
            WriteTensors(dir.path(), one.tensors);
            Json config = one.config;
            ForEachNumber(config, [&](Json& number) {
                const auto before = number.get<int64_t>();
                for (const int64_t other : {-1, 1}) {
                    number = before + other;
                    note(config.dump());
                    WriteText(dir / "config.json", config.dump());
                    (void)ErrorOf(dir.path());
                }
                number = before;
            });
        });
    });
}

// Downloads that `weft pull --shard` needs to open this folder: the header of its one file, then
// the ranges that each attempt to open it requests. 0: an error.
int RoundsToOpen(const std::string& folder) {
    const std::string file = folder + "/model.safetensors", part = file + hub::kPartSuffix;
    uint64_t length = 0;
    EXPECT_TRUE(
        File::Open(file).value().ReadAt(0, std::as_writable_bytes(std::span(&length, 1))).ok());
    std::filesystem::rename(file, part);
    std::filesystem::create_symlink(part, file);
    hub::PartNote note;
    note.size = std::filesystem::file_size(part);
    note.done.Add({0, sizeof length + length});
    for (int round = 1; round < 100; ++round) {
        WriteText(part + hub::kNoteSuffix, hub::PrintNote(note));
        model_files::ReadPlan plan(0);
        const auto source = model_files::hf::OpenFolder(folder, &plan);
        const auto wanted = plan.Take();
        if (wanted.empty() || !wanted.contains(file)) return source.ok() ? round : 0;
        for (const hub::ByteRange& range : wanted.at(file).ranges()) note.done.Add(range);
    }
    return 100;
}

// The number does not grow with the number of layers.
TEST(HfFamilies, OpenAfterFewDownloads) {
    ForEachFamily(2, [&](const FamilyCase& one, size_t) {
        SCOPED_TRACE(one.name);
        const test::TempDir dir, packed;
        WriteText(dir / "config.json", one.config.dump());
        WriteTensors(dir.path(), one.tensors);
        const int plain_rounds = RoundsToOpen(dir.path());
        EXPECT_TRUE(plain_rounds == 1 || plain_rounds == 2) << plain_rounds;
        if (one.config.contains("quantization_config")) return;
        Tensors tensors, plain;
        Quantize(one, HfLayout::kPacked4, tensors, plain);
        for (auto& [name, tensor] : tensors) {  // as in the folders of Kimi K2 Thinking
            if (!name.ends_with(".weight_shape")) continue;
            std::vector<int64_t> dims(2);
            std::memcpy(dims.data(), tensor.data.data(), tensor.data.size());
            tensor = {"I32", {2}, BytesOfValues(std::vector<int32_t>(dims.begin(), dims.end()))};
        }
        Json config = one.config;
        config["quantization_config"] = QuantizationConfig(HfLayout::kPacked4);
        WriteText(packed / "config.json", config.dump());
        WriteTensors(packed.path(), tensors);
        const int rounds = RoundsToOpen(packed.path());
        EXPECT_TRUE(rounds == 1 || rounds == 2) << rounds;
    });
}

}  // namespace
}  // namespace weft::support
