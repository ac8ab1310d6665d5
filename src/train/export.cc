#include "train/export.h"

#include <optional>

#include "formats/hf/export.h"
#include "formats/quantize/output_file.h"
#include "formats/quantize/quantize.h"
#include "hw/cpu.h"

namespace weft::train {
namespace {

using formats::hf::SafeType;

std::optional<SafeType> FindSafeType(const std::string& name) {
    for (const SafeType type : {SafeType::kF32, SafeType::kF16, SafeType::kBF16}) {
        if (formats::hf::SafeTypeName(type) == name) return type;
    }
    return std::nullopt;
}

int ThreadsOf(int threads) {
    return threads > 0 ? threads : static_cast<int>(AllowedCores().size());
}

std::string ResultPath(const ExportWords& words) {
    return words.folder + (words.format == "hf" ? "/model" : "/model.gguf");
}

Result<formats::QuantizePlan> PlanOf(const formats::ModelSource& source, const std::string& type) {
    formats::QuantizeOptions options;
    WEFT_ASSIGN(options.type, formats::FindFileType(type));
    options.allow_requantize = true;
    return formats::PlanQuantize(source, options);
}

Status WriteGguf(const formats::ModelSource& source, const WriteWords& words) {
    WEFT_ASSIGN(const formats::QuantizePlan plan, PlanOf(source, words.type));
    formats::QuantizeRun run;
    run.threads = ThreadsOf(words.threads);
    run.level = BestCpuLevel(DetectCpu());
    run.replace = words.replace;
    run.stop = words.stop;
    const auto bytes = formats::WriteQuantized(source, plan, words.path, run);
    return bytes.ok() ? Status() : Status(bytes.error());
}

Status WriteFolder(const formats::ModelSource& source, const WriteWords& words) {
    formats::hf::ExportOptions options;
    options.type = FindSafeType(words.type).value_or(SafeType::kBF16);
    options.threads = ThreadsOf(words.threads);
    options.level = BestCpuLevel(DetectCpu());
    options.stop = words.stop;
    return formats::hf::ExportFolder(source, words.path, options);
}

}  // namespace

Status WriteModel(const formats::ModelSource& source, const WriteWords& words) {
    WEFT_TRY(CheckExport({"", words.format, words.type, words.threads}));
    return words.format == "hf" ? WriteFolder(source, words) : WriteGguf(source, words);
}

Status CheckExport(const ExportWords& words) {
    if (words.format == "hf" && !FindSafeType(words.type)) {
        return MakeError(ErrorCode::kUsage,
                         "--save-type {}: a Hugging Face folder has F32, F16 or BF16", words.type);
    }
    if (words.format == "hf") return {};
    if (words.format == "gguf") {
        const auto type = formats::FindFileType(words.type);
        return type.ok() ? Status() : Status(type.error());
    }
    return MakeError(ErrorCode::kUsage, "--save-format {}: expected gguf or hf", words.format);
}

Result<uint64_t> CheckRoom(const formats::ModelSource& source, const ExportWords& words) {
    uint64_t bytes = 0;
    if (words.format == "hf") {
        const SafeType type = FindSafeType(words.type).value_or(SafeType::kBF16);
        for (const formats::TensorInfo& tensor : source.tensors()) {
            bytes += static_cast<uint64_t>(tensor.rows * tensor.cols) *
                     formats::hf::SafeTypeBytes(type);
        }
    } else {
        WEFT_ASSIGN(const formats::QuantizePlan plan, PlanOf(source, words.type));
        bytes = plan.bytes;
    }
    WEFT_TRY(formats::CheckSpace(ResultPath(words), bytes));
    return bytes;
}

Result<std::string> ExportModel(const formats::ModelSource& trained, const ExportWords& words,
                                const std::atomic<bool>* stop) {
    const std::string path = ResultPath(words);
    WEFT_TRY(WriteModel(trained, {path, words.format, words.type, words.threads, true, stop}));
    return path;
}

}  // namespace weft::train
