// libFuzzer target: any bytes as a LoRA adapter: the first line is adapter_config.json, the rest
// adapter_model.safetensors, or adapter_model.bin if it is a zip. An accepted adapter must be
// readable beside the model, merged into it, and as the start of further training; and it must be
// the same after it is written again.
//     build-fuzz/fuzz/lora_fuzz -max_total_time=60 -malloc_limit_mb=64 fuzz/corpus/lora
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "model_files/hf/scratch.h"
#include "model_files/lora/adapted_source.h"
#include "model_files/lora/merged_source.h"
#include "support/temp_dir.h"
#include "train/lora/lora_source.h"

namespace {

using namespace weft;
using namespace weft::model_files;

constexpr std::string_view kModel =
    R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 10, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 16, "tie_word_embeddings": true})";

void Write(const std::string& path, std::span<const std::byte> bytes) {
    WEFT_CHECK(WriteFile(path, bytes).ok());
}

std::unique_ptr<ModelSource> Model(const test::TempDir& dir) {
    return std::move(hf::OpenScratch(dir.path(), 1)).value();
}

// Every row of what the source has beside the model, whole and cut. False: a value is no number.
bool ReadAll(const ModelSource& source) {
    for (const TensorInfo& tensor : source.tensors()) {
        WEFT_CHECK(source.FindTensor(tensor.name) == &tensor ||
                   source.FindTensor(tensor.name)->bytes == tensor.bytes);
        WEFT_CHECK(tensor.bytes ==
                   static_cast<uint64_t>(tensor.rows * RowBytes(tensor.dtype, tensor.cols)));
        std::vector<std::byte> whole(tensor.bytes);
        const Status read = source.ReadRows(tensor, 0, tensor.rows, 0, tensor.cols, whole, nullptr);
        if (!read.ok()) {
            WEFT_CHECK(read.error().code == ErrorCode::kCorrupt && !read.error().message.empty());
            return false;
        }
        const int64_t row = tensor.rows / 2, col = tensor.cols / 2, cols = tensor.cols - col;
        const auto row_bytes = static_cast<size_t>(RowBytes(tensor.dtype, tensor.cols));
        std::vector<std::byte> part(static_cast<size_t>(RowBytes(tensor.dtype, cols)));
        WEFT_CHECK(source.ReadRows(tensor, row, 1, col, cols, part, nullptr).ok());
        const auto in_whole = std::span(whole).subspan(
            static_cast<size_t>(row + 1) * row_bytes - part.size(), part.size());
        WEFT_CHECK(std::ranges::equal(part, in_whole));
    }
    WEFT_CHECK(source.Fingerprint().ok());
    return true;
}

void CheckWritten(const ModelSource& trained, const std::string& from, const std::string& to,
                  const ModelSource& model) {
    LoraOptions words;
    words.from = from;
    const auto plan = PlanLora(model, words);
    WEFT_CHECK(plan.ok() && !plan->targets.empty() && std::isfinite(plan->targets[0].scale));
    const auto adapter = PlanAdapter(trained, *plan, "model");
    WEFT_CHECK(adapter.ok() && WriteAdapter(trained, *adapter, to).ok());
    words.from = to;
    const auto again = PlanLora(model, words);
    WEFT_CHECK(again.ok() && again->targets.size() == plan->targets.size());
    WEFT_CHECK(again->words.rank == plan->words.rank);
    WEFT_CHECK(again->targets[0].scale == plan->targets[0].scale);
    WEFT_CHECK(AdapterFile::Open(*again).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const test::TempDir model, adapter, written;
    static const bool once = (Write(model / "config.json", std::as_bytes(std::span(kModel))), true);
    (void)once;
    const auto bytes = std::as_bytes(std::span(data, size));
    const uint8_t* const end = std::find(data, data + size, '\n');
    const auto config = bytes.first(static_cast<size_t>(end - data));
    Write(adapter / "adapter_config.json", config);
    const auto tensors = bytes.subspan(std::min(config.size() + 1, size));
    const bool zip = tensors.size() > 1 && tensors[0] == std::byte{'P'};
    const std::string names[] = {adapter / "adapter_model.safetensors",
                                 adapter / "adapter_model.bin"};
    std::filesystem::remove(names[zip ? 0 : 1]);
    Write(names[zip ? 1 : 0], tensors);
    const std::vector<NamedAdapter> named{{"one", adapter.path()}, {"two", adapter.path()}};
    const auto adapted = AdaptedSource::Make(Model(model), named);
    LoraOptions words;
    words.from = adapter.path();
    const auto trained = train::LoraSource::Make(Model(model), words);
    const auto merged = MergedSource::Make(Model(model), adapter.path());
    WEFT_CHECK(adapted.ok() == trained.ok() && trained.ok() == merged.ok());
    if (!adapted.ok()) {
        WEFT_CHECK(!adapted.error().message.empty());
        return 0;
    }
    if (!ReadAll(**adapted)) return 0;
    WEFT_CHECK(!FingerprintOfAdapters(**adapted).empty());
    if (!ReadAll(**trained) || !ReadAll(**merged)) return 0;
    WEFT_CHECK(!(*merged)->changes().empty());
    CheckWritten(**trained, adapter.path(), written.path(), *Model(model));
    return 0;
}
